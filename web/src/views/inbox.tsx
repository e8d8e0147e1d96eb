/** The inbox: the requests of agents to a person, open ones first. */

import { useRecentHandoffs } from "../api/handoffs.ts";
import type { Resource } from "../api/resource.ts";
import type { Handoff } from "../api/types.ts";
import { answerText, kindText, resultOf } from "../lib/handoff.ts";
import { threadAddress } from "../lib/router.ts";
import { NotificationPermission } from "../ui/notification-permission.tsx";
import { Ago, Badge, Empty, Failure } from "../ui/parts.tsx";
import { ThreadName } from "../ui/thread-name.tsx";
import { HandoffCard } from "./handoff.tsx";

export function InboxView({ open }: { open: Resource<Handoff[]> }) {
  const recent = useRecentHandoffs(null);
  const settled = (recent.value ?? []).filter((handoff) => handoff.status !== "open");
  return (
    <main class="page" id="main" tabIndex={-1}>
      <header class="page-head">
        <h1>Inbox</h1>
        <NotificationPermission quiet />
      </header>
      {open.error !== undefined && <Failure error={open.error} retry={open.refresh} />}
      {open.value?.length === 0 && (
        <Empty
          title="No open requests."
          command="stead handoffs ask THREAD --kind approval --reason 'Deploy?'"
        >
          <p>An agent that needs an answer, a secret or an approval asks here. To try it:</p>
        </Empty>
      )}
      {open.value?.map((handoff) => (
        <HandoffCard key={handoff.handoff_id} handoff={handoff} place="list" />
      ))}
      {settled.length > 0 && <Settled handoffs={settled} />}
    </main>
  );
}

function Settled({ handoffs }: { handoffs: Handoff[] }) {
  return (
    <>
      <h2 class="section-title">Earlier</h2>
      <div class="table-box settled">
        <table class="table">
          <thead>
            <tr>
              <th scope="col">Request</th>
              <th scope="col">Result</th>
              <th scope="col" class="wide-only">
                Answer
              </th>
              <th scope="col" class="wide-only">
                Thread
              </th>
              <th scope="col">Asked</th>
            </tr>
          </thead>
          <tbody>
            {handoffs.map((handoff) => {
              const { text, tone } = resultOf(handoff);
              return (
                <tr key={handoff.handoff_id}>
                  <th scope="row">
                    <span class="wrap">{handoff.reason}</span>
                    <span class="quiet-text project">{kindText(handoff.kind)}</span>
                  </th>
                  <td>
                    <Badge tone={tone}>{text}</Badge>
                  </td>
                  <td class="wide-only wrap">{answerText(handoff)}</td>
                  <td class="wide-only">
                    <a href={threadAddress(handoff.thread_id)}>
                      <ThreadName thread={handoff.thread_id} />
                    </a>
                  </td>
                  <td>
                    <Ago time={handoff.created_at} />
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </>
  );
}
