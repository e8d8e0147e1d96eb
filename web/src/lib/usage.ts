/** What an instance uses, against its limits. */

import type { InstanceMetrics } from "../api/types.ts";
import { bytes, duration } from "./time.ts";

export interface Usage {
  name: "CPU" | "Memory" | "Disk" | "Processes";
  text: string;
  /** The part of the limit, from 0 to 1; null where nothing is limited or the use is not known. */
  part: number | null;
}

/** `cpu` is the use in percent of one core, as far as it is known. */
export function usageOf(metrics: InstanceMetrics, cpu: number | null): Usage[] {
  const { cpu_us, memory_bytes, disk_bytes, processes, limits } = metrics;
  const found: Usage[] = [];
  const add = (
    name: Usage["name"],
    used: number | null | undefined,
    limit: number | undefined,
    format: (value: number) => string,
  ): void => {
    if (typeof used !== "number") return;
    const text = limit ? `${format(used)} of ${format(limit)}` : format(used);
    found.push({ name, text, part: limit ? Math.min(1, used / limit) : null });
  };
  if (cpu !== null) add("CPU", cpu, limits ? limits.milli_cpus / 10 : undefined, (share) => `${share} %`);
  else add("CPU", cpu_us, undefined, (us) => `${duration(Math.floor(us / 1_000_000) * 1000)} of time`);
  add("Memory", memory_bytes, limits?.memory_bytes, bytes);
  // Without a limit, the disk is that of the machine, and only kept output is counted.
  if (limits?.disk_bytes) add("Disk", disk_bytes, limits.disk_bytes, bytes);
  add("Processes", processes, limits?.processes, String);
  return found;
}

/** A reading of the CPU time of an instance. */
export interface CpuReading {
  instance: string;
  at: number;
  cpu_us: number | null | undefined;
}
