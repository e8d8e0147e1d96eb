/** A request of an agent to a person, with what it takes to answer it. */

import type { ComponentChildren } from "preact";
import { useId, useRef, useState } from "preact/hooks";
import { describe, path, send } from "../api/client.ts";
import { announce } from "../api/events.ts";
import type { Handoff } from "../api/types.ts";
import { type Control, useControl } from "../lib/control.ts";
import { kindText } from "../lib/handoff.ts";
import { threadAddress } from "../lib/router.ts";
import { relative } from "../lib/time.ts";
import { ask, toast } from "../ui/dialogs.tsx";
import { Icon } from "../ui/icons.tsx";
import { Ago, Button, useNow } from "../ui/parts.tsx";
import { ThreadName } from "../ui/thread-name.tsx";

type Answer = { approve?: boolean; option?: string; text?: string; secret?: string };

/** A hand-off that expires sooner is marked. */
const SOON_MS = 5 * 60_000;

const address = (handoff: Handoff, verb: "answer" | "decline"): string =>
  path("api", "handoffs", handoff.handoff_id, verb);

async function decline(handoff: Handoff): Promise<void> {
  await ask({
    title: "Decline this request?",
    text: "The agent receives your decision and your note.",
    sample: handoff.reason,
    action: "Decline",
    danger: true,
    fields: [{ name: "text", label: "Note to the agent", optional: true }],
    submit: ({ text }) => send("POST", address(handoff, "decline"), text ? { text } : {}),
    failed: "Couldn't decline the request.",
  });
}

interface CardProps {
  handoff: Handoff;
  /** Whether the card is on the page of the hand-off's thread. */
  place: "thread" | "list";
}

export function HandoffCard({ handoff, place }: CardProps) {
  const title = useId();
  const [failure, setFailure] = useState<string | null>(null);
  const control = useControl(handoff.terminal_id);
  /** Whether the person answers in the terminal itself. */
  const [taken, setTaken] = useState(false);
  /** Sends an answer. What was entered stays until it was accepted. */
  const answer = async (given: Answer): Promise<boolean> => {
    try {
      await send("POST", address(handoff, "answer"), given);
      announce("handoff_answered");
      toast("Answer sent.");
      return true;
    } catch (error) {
      setFailure(describe(error));
      return false;
    }
  };
  return (
    <section class={`handoff ${handoff.kind}`} aria-labelledby={title} data-handoff={handoff.handoff_id}>
      <header>
        <Icon name={handoff.kind === "secret" ? "key" : handoff.kind === "input" ? "keyboard" : "check"} />
        <h3 id={title}>{kindText(handoff.kind)}</h3>
        {place === "list" && (
          <a href={threadAddress(handoff.thread_id)}>
            <ThreadName thread={handoff.thread_id} />
          </a>
        )}
        <span class="quiet-text">
          <Ago time={handoff.created_at} />
          <Expiry at={handoff.expires_at} />
        </span>
      </header>
      <p class="handoff-reason">{handoff.reason}</p>
      {control && taken ? (
        <ReleaseForm handoff={handoff} answer={answer} control={control} cancel={() => setTaken(false)} />
      ) : (
        <AnswerForm handoff={handoff} answer={answer}>
          <ControlAction handoff={handoff} place={place} onTaken={() => setTaken(true)} />
        </AnswerForm>
      )}
      {failure !== null && (
        <p class="failure" role="alert">
          Couldn't send the answer. {failure}
        </p>
      )}
    </section>
  );
}

/** When the request expires, if that is soon. */
function Expiry({ at }: { at: string }) {
  const now = useNow(5000);
  const left = Date.parse(at) - now;
  return left < SOON_MS ? <span class="soon"> · expires {left > 0 ? relative(at, now) : "now"}</span> : null;
}

/** Takes control of the terminal of a hand-off, or leads to where that is possible. */
function ControlAction({ handoff, place, onTaken }: CardProps & { onTaken: () => void }) {
  const control = useControl(handoff.terminal_id);
  const terminal = threadAddress(handoff.thread_id, "terminals", { show: handoff.terminal_id });
  if (place === "list" || control === null) {
    return (
      <a class="button" href={terminal}>
        Open terminal
      </a>
    );
  }
  // A secret is typed by the form: the server checks that the terminal does not show it.
  if (handoff.kind === "secret") return null;
  const take = (): void => {
    control.take();
    onTaken();
  };
  return (
    <Button disabled={!control.ready} onClick={take}>
      <Icon name="keyboard" />
      Take control
    </Button>
  );
}

interface FormProps {
  handoff: Handoff;
  answer: (given: Answer) => Promise<boolean>;
  children: ComponentChildren;
}

function AnswerForm(props: FormProps) {
  switch (props.handoff.kind) {
    case "approval":
      return <ApprovalForm {...props} />;
    case "input":
      return <InputForm {...props} />;
    case "secret":
      return <SecretForm {...props} />;
  }
}

const DeclineButton = ({ handoff }: { handoff: Handoff }) => (
  <Button tone="danger" onClick={() => decline(handoff)}>
    Decline
  </Button>
);

/** Buttons for the options of a hand-off. */
function Options({ handoff, choose }: { handoff: Handoff; choose: (option: string) => Promise<unknown> }) {
  return (
    <>
      {handoff.options.map((option) => (
        <Button key={option} tone="main" onClick={() => choose(option)}>
          {option}
        </Button>
      ))}
    </>
  );
}

function ApprovalForm({ handoff, answer, children }: FormProps) {
  return (
    <div class="handoff-actions">
      {handoff.options.length > 0 ? (
        <Options handoff={handoff} choose={(option) => answer({ approve: true, option })} />
      ) : (
        <Button tone="main" onClick={() => answer({ approve: true })}>
          Approve
        </Button>
      )}
      <DeclineButton handoff={handoff} />
      {children}
    </div>
  );
}

function InputForm({ handoff, answer, children }: FormProps) {
  const [text, setText] = useState("");
  const submit = async (): Promise<void> => {
    if (text !== "" && (await answer({ text }))) setText("");
  };
  return (
    <form
      class="handoff-form"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      {handoff.options.length > 0 && (
        <div class="handoff-actions">
          <Options handoff={handoff} choose={(option) => answer({ option })} />
        </div>
      )}
      <div class="handoff-actions">
        <textarea
          rows={Math.min(6, text.split("\n").length)}
          value={text}
          placeholder="Your answer"
          aria-label="Your answer"
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            void submit();
          }}
        />
        <button type="submit" class="button main" disabled={text === ""}>
          Send
        </button>
        <DeclineButton handoff={handoff} />
        {children}
      </div>
    </form>
  );
}

/** The secret is in the field alone: not in the state of the app, and no longer there once it was sent. */
function SecretForm({ handoff, answer, children }: FormProps) {
  const field = useRef<HTMLInputElement>(null);
  const [empty, setEmpty] = useState(true);
  const [shown, setShown] = useState(false);
  const [busy, setBusy] = useState(false);
  const hint = useId();
  const toggle = (): void => {
    if (field.current) field.current.type = shown ? "password" : "text";
    setShown(!shown);
  };
  const submit = async (): Promise<void> => {
    const secret = field.current?.value ?? "";
    if (secret === "" || busy) return;
    setBusy(true);
    const sent = await answer({ secret });
    setBusy(false);
    if (!sent || !field.current) return;
    field.current.value = "";
    setEmpty(true);
  };
  return (
    <form
      class="handoff-form"
      autocomplete="off"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <div class="handoff-actions">
        <input
          ref={field}
          type="password"
          class="secret"
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          placeholder="Secret"
          aria-label="Secret"
          aria-describedby={hint}
          onInput={(event) => setEmpty(event.currentTarget.value === "")}
        />
        <button
          type="button"
          class="reveal"
          aria-pressed={shown}
          aria-label={shown ? "Hide the secret" : "Show the secret"}
          onClick={toggle}
        >
          {shown ? "hide" : "show"}
        </button>
        <button type="submit" class="button main" disabled={empty || busy}>
          Send
        </button>
        <DeclineButton handoff={handoff} />
        {children}
      </div>
      <p class="quiet-text" id={hint}>
        Typed into the program that reads the terminal. It is not stored, and the agent does not see it.
      </p>
    </form>
  );
}

interface ReleaseProps {
  handoff: Handoff;
  answer: FormProps["answer"];
  control: Control;
  cancel: () => void;
}

/** Shown while the person works in the terminal: answers with a note for the agent and releases control. */
function ReleaseForm({ handoff, answer, control, cancel }: ReleaseProps) {
  const [note, setNote] = useState("");
  const isInput = handoff.kind === "input";
  const finish = async (given: Answer): Promise<void> => {
    if (await answer({ ...given, ...(note !== "" && { text: note }) })) control.release();
  };
  return (
    <div class="handoff-form">
      <p class="quiet-text" role="status">
        {control.mine
          ? "You have control. When you are done, release it with a note to the agent."
          : `${control.driver ?? "Another client"} has control.`}
      </p>
      <div class="handoff-actions">
        <textarea
          rows={Math.min(6, note.split("\n").length)}
          value={note}
          placeholder={isInput ? "What you did" : "What you did (optional)"}
          aria-label="Note to the agent"
          onInput={(event) => setNote(event.currentTarget.value)}
        />
        {handoff.options.length > 0 && !isInput ? (
          <Options handoff={handoff} choose={(option) => finish({ approve: true, option })} />
        ) : (
          <Button
            tone="main"
            disabled={isInput && note === ""}
            onClick={() => finish(isInput ? {} : { approve: true })}
          >
            {isInput ? "Answer and release control" : "Approve and release control"}
          </Button>
        )}
        <Button onClick={cancel}>Back</Button>
      </div>
    </div>
  );
}

/** The open hand-offs of a thread, above its views. */
export function HandoffBanner({ handoffs }: { handoffs: Handoff[] }) {
  const [all, setAll] = useState(false);
  if (handoffs.length === 0) return null;
  const others = handoffs.length - 1;
  return (
    <div class="handoff-banner">
      {(all ? handoffs : handoffs.slice(0, 1)).map((handoff) => (
        <HandoffCard key={handoff.handoff_id} handoff={handoff} place="thread" />
      ))}
      {others > 0 && (
        <Button tone="ghost" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? "Show one request" : `Show ${others} more ${others === 1 ? "request" : "requests"}`}
        </Button>
      )}
    </div>
  );
}
