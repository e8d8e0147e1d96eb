/** Sandboxes: create them, see their state and lifetime, suspend, resume, fork and snapshot them. */

import { useEffect, useRef, useState } from "preact/hooks";
import { list, path, send } from "../api/client.ts";
import { type Resource, useResource } from "../api/resource.ts";
import type { Lease, Provider, Sandbox } from "../api/types.ts";
import { go, threadAddress } from "../lib/router.ts";
import { lifetimeOf, sandboxRequest } from "../lib/sandbox.ts";
import { clock, cpuPercent, duration } from "../lib/time.ts";
import { type CpuReading, type Usage, usageOf } from "../lib/usage.ts";
import { ask, attempt, toast } from "../ui/dialogs.tsx";
import { Icon } from "../ui/icons.tsx";
import { Ago, Badge, Button, Empty, Failure, Menu, type MenuItem, type Tone, useNow } from "../ui/parts.tsx";
import { PortsDialog } from "./ports.tsx";

/** A lifetime that ends sooner is marked. */
const SOON_MS = 5 * 60_000;

function useSandboxes(): Resource<Sandbox[]> {
  return useResource<Sandbox[]>(
    "sandboxes",
    () => list<Sandbox>("/api/sandboxes?limit=1000", 2000),
    (event) => ["instance", "lease", "thread"].some((noun) => event.name.startsWith(noun)),
    500,
  );
}

/** How long after the first reading of CPU times a second one is taken: a rate needs two. */
const SECOND_READING_MS = 2000;

/** The usage of running instances, by lease. */
function useUsage(): Map<string, Usage[]> {
  const readings = useRef(new Map<string, CpuReading>());
  const usage = useResource<Map<string, Usage[]>>(
    "usage of leases",
    async () => {
      const leases = await list<Lease>("/api/leases?limit=1000", 2000);
      const before = readings.current;
      readings.current = new Map();
      return new Map(
        leases.flatMap(({ lease_id, instance }): [string, Usage[]][] => {
          if (!instance?.metrics) return [];
          const { cpu_us } = instance.metrics;
          const now = { instance: instance.instance_id, at: performance.now(), cpu_us };
          readings.current.set(lease_id, now);
          const then = before.get(lease_id);
          const isSame = then?.instance === now.instance;
          const cpu = isSame ? cpuPercent(then.cpu_us, cpu_us, now.at - then.at) : null;
          return [[lease_id, usageOf(instance.metrics, cpu)]];
        }),
      );
    },
    (event) => event.name.startsWith("instance") || event.name === "command_ended",
    5000,
  );
  const isRead = usage.value !== undefined;
  useEffect(() => {
    if (!isRead) return;
    const timer = setTimeout(usage.refresh, SECOND_READING_MS);
    return () => clearTimeout(timer);
  }, [isRead]);
  return usage.value ?? new Map();
}

/** Opens the dialog that creates a sandbox. */
export async function newSandbox(): Promise<void> {
  const providers = await list<Provider>("/api/providers").catch(() => []);
  const available = providers.filter((provider) => provider.available !== false).map(({ name }) => name);
  let made: Sandbox | undefined;
  await ask({
    title: "New sandbox",
    text: "Starts an environment with a thread and a terminal of its own.",
    action: "Create",
    fields: [
      { name: "name", label: "Name", hint: "unique within its project", optional: true },
      { name: "provider", label: "Provider", options: ["", ...available], optional: true },
      { name: "image", label: "Image", hint: "for example debian:13", optional: true },
      { name: "snapshot", label: "Snapshot", hint: "name of a snapshot to start from", optional: true },
      { name: "cpus", label: "CPUs", hint: "for example 0.5 or 2", optional: true },
      { name: "memory", label: "Memory", hint: "for example 512m or 1g", optional: true },
      { name: "disk", label: "Disk", hint: "for example 10g", optional: true },
      { name: "egress", label: "Network access", hint: "none, public, all, or host:port,…", optional: true },
      { name: "timeout_s", label: "Lifetime", hint: "unlimited; or for example 30m, 2h, 1d", optional: true },
      {
        name: "on_timeout",
        label: "At the end of its lifetime",
        options: ["suspend", "destroy"],
        optional: true,
      },
      { name: "labels", label: "Labels", hint: "NAME=VALUE, separated by commas", optional: true },
    ],
    submit: async (entered) => {
      made = await send<Sandbox>("POST", "/api/sandboxes", sandboxRequest(entered));
    },
    failed: "Couldn't create the sandbox.",
  });
  if (made) go(threadAddress(made.thread_id));
}

export function SandboxesView() {
  const sandboxes = useSandboxes();
  const usage = useUsage();
  const [ports, setPorts] = useState<Sandbox | null>(null);
  return (
    <main class="page" id="main" tabIndex={-1}>
      <header class="page-head">
        <h1>Sandboxes</h1>
        <Button tone="main" onClick={newSandbox}>
          New sandbox
        </Button>
      </header>
      {sandboxes.error !== undefined && <Failure error={sandboxes.error} retry={sandboxes.refresh} />}
      {sandboxes.value?.length === 0 && (
        <Empty title="No sandboxes yet." command="stead sandbox create demo">
          <p>A sandbox has a name, limits and a lifetime. Create one here, or run:</p>
        </Empty>
      )}
      {sandboxes.value && sandboxes.value.length > 0 && (
        <div class="table-box">
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Sandbox</th>
                <th scope="col">State</th>
                <th scope="col" class="wide-only">
                  Provider
                </th>
                <th scope="col" class="wide-only">
                  Started from
                </th>
                <th scope="col" class="wide-only">
                  Usage
                </th>
                <th scope="col" class="wide-only">
                  Lifetime
                </th>
                <th scope="col" class="wide-only">
                  Last used
                </th>
                <th scope="col">
                  <span class="hidden-text">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {sandboxes.value.map((sandbox) => (
                <SandboxRow
                  key={sandbox.sandbox_id}
                  sandbox={sandbox}
                  refresh={sandboxes.refresh}
                  usage={usage.get(sandbox.lease_id)}
                  showPorts={() => setPorts(sandbox)}
                />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {ports && <PortsDialog sandbox={ports} close={() => setPorts(null)} />}
    </main>
  );
}

const TONES: Record<string, Tone> = { running: "good", paused: "warn", suspended: "quiet", stopped: "quiet" };

const labelOf = (sandbox: Sandbox): string => sandbox.name ?? sandbox.sandbox_id;

interface RowProps {
  sandbox: Sandbox;
  refresh: () => void;
  /** What its instance uses, if it runs. */
  usage: Usage[] | undefined;
  showPorts: () => void;
}

function SandboxRow({ sandbox, refresh, usage, showPorts }: RowProps) {
  const name = labelOf(sandbox);
  const awake = sandbox.state === "running";
  const act = async (verb: "resume" | "suspend" | "pause", done: string): Promise<void> => {
    await attempt(
      `Couldn't ${verb} ${name}.`,
      () => send("POST", path("api", "sandboxes", sandbox.sandbox_id, verb)),
      done,
    );
    refresh();
  };
  const items: MenuItem[] = [
    // No program listens in a sandbox that does not run.
    { label: "Ports…", disabled: !awake, run: showPorts },
    { label: "Pause", disabled: !awake, run: () => act("pause", `Paused ${name}.`) },
    { label: "Extend lifetime…", run: () => extend(sandbox).then(refresh) },
    { label: "Fork…", run: () => fork(sandbox).then(refresh) },
    { label: "Snapshot…", run: () => snapshot(sandbox) },
    { label: "Delete…", tone: "danger", run: () => remove(sandbox).then(refresh) },
  ];
  return (
    <tr>
      <th scope="row">
        <a class="name" href={threadAddress(sandbox.thread_id)}>
          {name}
        </a>
        <span class="tags">
          {Object.entries(sandbox.labels).map(([label, value]) => (
            <span key={label} class="tag">
              {label}={value}
            </span>
          ))}
        </span>
      </th>
      <td>
        <Badge tone={TONES[sandbox.state] ?? "quiet"}>{sandbox.state}</Badge>
      </td>
      <td class="wide-only">
        <span class="provider">{sandbox.provider}</span>
      </td>
      <td class="wide-only">{sandbox.template || "default"}</td>
      <td class="wide-only">{awake && usage && <Usages usage={usage} />}</td>
      <td class="wide-only">
        <Lifetime sandbox={sandbox} />
      </td>
      <td class="wide-only">
        <Ago time={sandbox.last_active_at ?? sandbox.created_at} />
      </td>
      <td class="row-actions">
        {awake ? (
          <Button aria-label={`Suspend ${name}`} onClick={() => act("suspend", `Suspended ${name}.`)}>
            Suspend
          </Button>
        ) : (
          <Button tone="main" aria-label={`Resume ${name}`} onClick={() => act("resume", `Resumed ${name}.`)}>
            Resume
          </Button>
        )}
        <Menu label={`More actions for ${name}`} items={items}>
          <Icon name="more" />
        </Menu>
      </td>
    </tr>
  );
}

/** The part of a limit from which its usage is marked. */
const NEAR_LIMIT = 0.9;

function Usages({ usage }: { usage: Usage[] }) {
  return (
    <dl class="usages">
      {usage.map(({ name, text, part }) => (
        <div key={name} class={`usage${part !== null && part >= NEAR_LIMIT ? " near" : ""}`}>
          <dt>{name}</dt>
          <dd>{text}</dd>
          {part !== null && (
            <span class="usage-bar" aria-hidden="true">
              <span style={{ width: `${part * 100}%` }} />
            </span>
          )}
        </div>
      ))}
    </dl>
  );
}

function Lifetime({ sandbox: { expires_at: end, on_timeout: then } }: { sandbox: Sandbox }) {
  const now = useNow(5000);
  if (end === null) return <span class="quiet-text">unlimited</span>;
  const left = Date.parse(end) - now;
  return (
    <span class={left < SOON_MS ? "soon" : ""} title={clock(end, now)}>
      {left > 0 ? `${duration(Math.floor(left / 1000) * 1000)}, then ${then}` : "over"}
    </span>
  );
}

async function extend(sandbox: Sandbox): Promise<void> {
  await ask({
    title: `Extend the lifetime of ${labelOf(sandbox)}`,
    text: "The sandbox lives at least this long from now.",
    action: "Extend",
    fields: [{ name: "timeout_s", label: "Lifetime", value: "1h" }],
    submit: ({ timeout_s: text = "" }) =>
      send("POST", path("api", "sandboxes", sandbox.sandbox_id, "extend"), { timeout_s: lifetimeOf(text) }),
    failed: "Couldn't extend the lifetime.",
  });
}

async function fork(sandbox: Sandbox): Promise<void> {
  let made: Sandbox | undefined;
  await ask({
    title: `Fork ${labelOf(sandbox)}`,
    text: "Creates a sandbox with a copy of its files. The shell continues where this one is.",
    action: "Fork",
    fields: [{ name: "name", label: "Name of the fork", optional: true }],
    submit: async ({ name }) => {
      const address = path("api", "sandboxes", sandbox.sandbox_id, "fork");
      made = await send<Sandbox>("POST", address, name ? { name } : {});
    },
    failed: "Couldn't fork the sandbox.",
  });
  if (made) go(threadAddress(made.thread_id));
}

async function snapshot(sandbox: Sandbox): Promise<void> {
  const taken = await ask({
    title: `Snapshot of ${labelOf(sandbox)}`,
    text: "Keeps a copy of its files. A snapshot of the same name is replaced.",
    action: "Create snapshot",
    fields: [{ name: "name", label: "Name of the snapshot" }],
    submit: ({ name }) => send("POST", path("api", "sandboxes", sandbox.sandbox_id, "snapshot"), { name }),
    failed: "Couldn't create the snapshot.",
  });
  if (taken) toast(`Created the snapshot ${taken.name}.`);
}

async function remove(sandbox: Sandbox): Promise<void> {
  const name = labelOf(sandbox);
  await ask({
    title: "Delete this sandbox?",
    text: "Its processes are killed, and its files, thread and terminals are deleted.",
    action: "Delete",
    danger: true,
    type: name,
    submit: () => send("DELETE", path("api", "sandboxes", sandbox.sandbox_id)),
    failed: "Couldn't delete the sandbox.",
  });
}
