/** Leases with their instances. */

import { list, path, send } from "../api/client.ts";
import { useResource } from "../api/resource.ts";
import type { Lease } from "../api/types.ts";
import { threadAddress } from "../lib/router.ts";
import { bytes } from "../lib/time.ts";
import { ask, attempt } from "../ui/dialogs.tsx";
import { Icon } from "../ui/icons.tsx";
import { Ago, Badge, Button, Empty, Failure, Id, toneOf } from "../ui/parts.tsx";
import { ThreadName } from "../ui/thread-name.tsx";
import { statusText } from "./threads.tsx";

export function LeasesView() {
  const leases = useResource<Lease[]>(
    "leases",
    () => list<Lease>("/api/leases?limit=200"),
    (event) => ["lease", "instance", "thread", "terminal"].some((noun) => event.name.startsWith(noun)),
  );
  const act = async (lease: Lease, verb: "pause" | "resume"): Promise<void> => {
    await attempt(
      `Couldn't ${verb} the lease.`,
      () => send("POST", path("api", "leases", lease.lease_id, verb)),
      verb === "pause" ? "Paused." : "Resumed.",
    );
    leases.refresh();
  };
  const destroy = async (lease: Lease): Promise<void> => {
    const yes = await ask({
      title: "Destroy this lease?",
      text: "Its instance is deleted, and every process in its terminals is killed.",
      sample: lease.lease_id,
      action: "Destroy",
      danger: true,
    });
    if (!yes) return;
    await attempt(
      "Couldn't destroy the lease.",
      () => send("POST", path("api", "leases", lease.lease_id, "destroy")),
      "Lease destroyed.",
    );
    leases.refresh();
  };
  return (
    <main class="page" id="main" tabIndex={-1}>
      <header class="page-head">
        <h1>Leases</h1>
      </header>
      {leases.error !== undefined && <Failure error={leases.error} retry={leases.refresh} />}
      {leases.value?.length === 0 && (
        <Empty title="No sandboxes are running." command="stead exec --thread demo -- 'echo hello'">
          <p>A thread's first command starts one:</p>
        </Empty>
      )}
      {leases.value && leases.value.length > 0 && (
        <div class="table-box">
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Used by</th>
                <th scope="col">Instance</th>
                <th scope="col" class="wide-only">
                  Provider
                </th>
                <th scope="col" class="wide-only">
                  Lease
                </th>
                <th scope="col" class="wide-only">
                  Memory
                </th>
                <th scope="col" class="wide-only">
                  Started
                </th>
                <th scope="col">
                  <span class="hidden-text">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {leases.value.map((lease) => {
                const state = lease.instance?.state ?? "none";
                const names = lease.shared_by?.join(", ") || lease.lease_id;
                const memory = lease.instance?.metrics?.memory_bytes;
                return (
                  <tr key={lease.lease_id}>
                    <th scope="row" class="name">
                      {(lease.shared_by ?? []).map((thread, index) => (
                        <span key={thread}>
                          {index > 0 && ", "}
                          <a href={threadAddress(thread)}>
                            <ThreadName thread={thread} />
                          </a>
                        </span>
                      ))}
                      {(lease.shared_by ?? []).length === 0 && <span class="quiet-text">No threads</span>}
                    </th>
                    <td>
                      <Badge tone={toneOf(state)}>{statusText(state)}</Badge>
                    </td>
                    <td class="wide-only">
                      <span class="provider">{lease.provider_name}</span>
                    </td>
                    <td class="wide-only">
                      <Id id={lease.lease_id} />
                    </td>
                    <td class="wide-only">{typeof memory === "number" ? bytes(memory) : ""}</td>
                    <td class="wide-only">
                      {lease.instance?.started_at && <Ago time={lease.instance.started_at} />}
                    </td>
                    <td class="row-actions">
                      {state === "paused" ? (
                        <Button
                          tone="ghost"
                          title="Resume"
                          aria-label={`Resume ${names}`}
                          onClick={() => act(lease, "resume")}
                        >
                          <Icon name="play" />
                        </Button>
                      ) : (
                        <Button
                          tone="ghost"
                          title="Pause"
                          aria-label={`Pause ${names}`}
                          disabled={state !== "running"}
                          onClick={() => act(lease, "pause")}
                        >
                          <Icon name="pause" />
                        </Button>
                      )}
                      <Button
                        tone="ghost"
                        title="Destroy"
                        aria-label={`Destroy ${names}`}
                        onClick={() => destroy(lease)}
                      >
                        <Icon name="trash" />
                      </Button>
                    </td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
      <p class="quiet-text">
        <a href="/ui/settings#providers">Settings</a> shows the providers that create instances.
      </p>
    </main>
  );
}
