/** The status of a thread: its session, terminal and lease, kept up to date by events. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get, isProblem, path } from "../api/client.ts";
import { type AppEvent, onMeasurement } from "../api/events.ts";
import { type Resource, useResource } from "../api/resource.ts";
import type { Instance, InstanceMetrics, Lease, Session, Terminal } from "../api/types.ts";
import { isSecret, MASK } from "../lib/secrets.ts";
import { bytes, cpuPercent, duration, plural } from "../lib/time.ts";
import { Ago, Badge, Copy, Failure, Field, Id, toneOf, useNow } from "../ui/parts.tsx";
import { EgressSection } from "./egress.tsx";
import { PortsSection } from "./ports.tsx";

/** A session that expires sooner is marked. */
const SOON_MS = 5 * 60_000;

interface Props {
  thread: string;
  lease: Resource<Lease>;
  /** The terminal to describe; the default one if null. */
  selected: string | null;
  terminals: Terminal[];
  /** Whether an event changes this thread. */
  isAffected: (event: AppEvent) => boolean;
}

export function StatusSections({ thread, lease, selected, terminals, isAffected }: Props) {
  const here = path("api", "threads", thread);
  const session = useResource<Session>(`session ${thread}`, () => get(`${here}/session`), isAffected);
  const terminal = useResource<Terminal>(
    `terminal ${thread} ${selected}`,
    () => get(selected === null ? `${here}/terminal` : path("api", "terminals", selected)),
    isAffected,
  );
  return (
    <>
      <Section
        title="Session"
        resource={session}
        badge={session.value && <SessionBadge session={session.value} />}
      >
        {(value) => <SessionFields session={value} />}
      </Section>
      <Section
        title="Terminal"
        resource={terminal}
        badge={terminal.value && <span class="quiet-text">version {terminal.value.version}</span>}
      >
        {(value) => <TerminalFields terminal={value} count={terminals.length} />}
      </Section>
      <Section
        title="Lease"
        resource={lease}
        badge={
          lease.value && (
            <Badge tone={toneOf(lease.value.instance?.state)}>
              {lease.value.instance?.state ?? "no instance"}
            </Badge>
          )
        }
      >
        {(value) => <LeaseFields lease={value} />}
      </Section>
      <PortsSection
        key={thread}
        thread={thread}
        provider={lease.value?.provider_name}
        isAffected={isAffected}
      />
      <EgressSection key={`egress ${thread}`} thread={thread} isAffected={isAffected} />
    </>
  );
}

interface SectionProps<T> {
  title: string;
  resource: Resource<T>;
  badge: ComponentChildren;
  children: (value: T) => ComponentChildren;
}

function Section<T>({ title, resource, badge, children }: SectionProps<T>) {
  return (
    <details class="status-section" open>
      <summary>
        <h2>{title}</h2>
        {badge}
      </summary>
      {resource.value !== undefined && <dl class="fields">{children(resource.value)}</dl>}
      {resource.value === undefined &&
        resource.error !== undefined &&
        (isProblem(resource.error, 404) ? (
          <p class="quiet-text">none</p>
        ) : (
          <Failure error={resource.error} retry={resource.refresh} />
        ))}
    </details>
  );
}

const isOpen = (session: Session): boolean => session.status === "active" || session.status === "idle";

function SessionBadge({ session }: { session: Session }) {
  const now = useNow();
  const left = Date.parse(session.expires_at) - now;
  const soon = isOpen(session) && left < SOON_MS;
  return (
    <Badge tone={soon ? "warn" : toneOf(session.status)}>
      {soon ? `${session.status}, expires soon` : session.status}
    </Badge>
  );
}

function SessionFields({ session }: { session: Session }) {
  const now = useNow();
  const left = Date.parse(session.expires_at) - now;
  return (
    <>
      <Field name="Live">{isOpen(session) ? "yes" : "no; the next command opens a session"}</Field>
      <Field name="Created">
        <Ago time={session.created_at} />
      </Field>
      <Field name="Last active">
        <Ago time={session.last_active_at} />
      </Field>
      {isOpen(session) && (
        <Field name="Expires in">
          <span class={left < SOON_MS ? "soon" : ""}>
            {left > 0 ? duration(Math.floor(left / 1000) * 1000) : "now"}
          </span>
        </Field>
      )}
      <Field name="Policy">
        idle {duration(session.policy.idle_timeout_s * 1000)}, at most{" "}
        {duration(session.policy.max_duration_s * 1000)}
        {session.policy.on_expiry && `, then ${session.policy.on_expiry}`}
      </Field>
      <Field name="Id">
        <Id id={session.session_id} />
      </Field>
    </>
  );
}

function TerminalFields({ terminal, count }: { terminal: Terminal; count: number }) {
  const variables = Object.entries(terminal.env_delta ?? {}).sort(([a], [b]) => a.localeCompare(b));
  return (
    <>
      <Field name="Directory">
        <code class="wrap">{terminal.cwd || "not started"}</code>
        {terminal.cwd && <Copy text={terminal.cwd} label="Copy the directory" />}
      </Field>
      <Field name="Version">{terminal.version}</Field>
      {terminal.status && (
        <Field name="State">
          <Badge tone={toneOf(terminal.status)}>{terminal.status}</Badge>
        </Field>
      )}
      {count > 1 && <Field name="Terminals">{count}</Field>}
      <Field name="Changed">
        <Ago time={terminal.updated_at} />
      </Field>
      <Field name="Id">
        <Id id={terminal.terminal_id} />
      </Field>
      <dt class="span">
        Environment, {variables.length === 0 ? "unchanged" : `${variables.length} changed`}
      </dt>
      <dd class="span">
        <ul class="variables">
          {variables.map(([name, value]) => (
            <Variable key={name} name={name} value={value} />
          ))}
        </ul>
      </dd>
    </>
  );
}

/** An environment variable. A value that may be a secret is masked until it is revealed. */
export function Variable({ name, value, sign }: { name: string; value: string | null; sign?: "+" | "−" }) {
  const secret = isSecret(name, value);
  const [shown, setShown] = useState(false);
  return (
    <li class={sign === "+" ? "plus" : sign === "−" ? "minus" : ""}>
      <code class="variable-name">
        {sign && `${sign} `}
        {name}
      </code>
      {value === null ? (
        <span class="quiet-text">unset</span>
      ) : (
        <code class="wrap value">{secret && !shown ? MASK : value}</code>
      )}
      {secret && value !== null && (
        <button
          type="button"
          class="reveal"
          aria-pressed={shown}
          aria-label={`${shown ? "Hide" : "Show"} ${name}`}
          onClick={() => setShown(!shown)}
        >
          {shown ? "hide" : "show"}
        </button>
      )}
    </li>
  );
}

function LeaseFields({ lease }: { lease: Lease }) {
  const { instance } = lease;
  return (
    <>
      <Field name="Provider">
        <span class="provider">{lease.provider_name}</span>
      </Field>
      <Field name="Instance">
        <Badge tone={toneOf(instance?.state)}>{instance?.state ?? "none"}</Badge>
      </Field>
      {instance?.started_at && (
        <Field name="Started">
          <Ago time={instance.started_at} />
        </Field>
      )}
      {instance && <MetricFields key={instance.instance_id} instance={instance} />}
      {lease.generation !== undefined && lease.generation > 1 && (
        <Field name="Recreated">{plural(lease.generation - 1, "time")}</Field>
      )}
      {lease.shared_by && lease.shared_by.length > 1 && (
        <Field name="Shared by">{lease.shared_by.join(", ")}</Field>
      )}
      <Field name="Lease">
        <Id id={lease.lease_id} />
      </Field>
      {instance && (
        <Field name="Id">
          <Id id={instance.instance_id} />
        </Field>
      )}
    </>
  );
}

/** The resources an instance uses: as fetched at first, then as measured. */
function useMetrics(instance: Instance): { metrics: InstanceMetrics | null; share: number | null } {
  const [latest, setLatest] = useState<{ at: number; metrics: InstanceMetrics; share: number | null } | null>(
    null,
  );
  useEffect(
    () =>
      onMeasurement((measured) => {
        if (measured.instance_id !== instance.instance_id) return;
        const at = performance.now();
        setLatest((before) => ({
          at,
          metrics: measured,
          share: before && cpuPercent(before.metrics.cpu_us, measured.cpu_us, at - before.at),
        }));
      }),
    [instance.instance_id],
  );
  return { metrics: latest?.metrics ?? instance.metrics ?? null, share: latest?.share ?? null };
}

function MetricFields({ instance }: { instance: Instance }) {
  const { metrics, share } = useMetrics(instance);
  if (!metrics) return null;
  // Measurements leave the limits out.
  const { limits, exceeded } = instance.metrics ?? {};
  return (
    <>
      {typeof metrics.cpu_us === "number" && (
        <Field name="CPU time">
          {duration(metrics.cpu_us / 1000)}
          {share !== null && `, ${share}% of a core`}
          {limits && ` (limit ${limits.milli_cpus / 10}%)`}
        </Field>
      )}
      {typeof metrics.memory_bytes === "number" && (
        <Field name="Memory">
          {bytes(metrics.memory_bytes)}
          {limits && ` of ${bytes(limits.memory_bytes)}`}
        </Field>
      )}
      {typeof metrics.processes === "number" && (
        <Field name="Processes">
          {metrics.processes}
          {limits && ` of ${limits.processes}`}
        </Field>
      )}
      {typeof metrics.disk_bytes === "number" && (
        <Field name={limits?.disk_bytes ? "Disk" : "Output kept"}>
          {bytes(metrics.disk_bytes)}
          {limits?.disk_bytes && ` of ${bytes(limits.disk_bytes)}`}
        </Field>
      )}
      {exceeded && exceeded.out_of_memory > 0 && (
        <Field name="Out of memory">
          <span class="soon">{plural(exceeded.out_of_memory, "time")}</span>
        </Field>
      )}
      {exceeded && exceeded.processes > 0 && (
        <Field name="Process limit">
          <span class="soon">reached {plural(exceeded.processes, "time")}</span>
        </Field>
      )}
    </>
  );
}
