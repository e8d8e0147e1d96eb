/** Asks which ports the programs of a thread listen on. */

import { list, path } from "./client.ts";

/** The TCP ports in ascending order. A thread without an instance has none, and is not started. */
export async function portsOf(thread: string): Promise<number[]> {
  const items = await list<{ port: number }>(path("api", "threads", thread, "ports"));
  return items.map(({ port }) => port);
}
