/** Questions to the person and short remarks, asked for from anywhere and shown in one place. */

import { useEffect, useState } from "preact/hooks";
import { describe } from "../api/client.ts";
import { Button, useModal } from "./parts.tsx";

interface Question {
  title: string;
  /** Plain text; shown as it is. */
  text?: string;
  /** Something long or exact to look at, in fixed width. */
  sample?: string;
  action: string;
  danger?: boolean;
  /** Fields to fill in, by name. */
  fields?: {
    name: string;
    label: string;
    hint?: string;
    value?: string;
    options?: string[];
    optional?: boolean;
  }[];
  /** Must be typed before the action can be taken. */
  type?: string;
}

type Answers = Record<string, string>;
type Open = Question & { answer: (given: Answers | null) => void };

let show: (question: Open) => void = () => {};
let remark: (text: string, tone: "plain" | "bad") => void = () => {};

/** Asks; the filled-in fields, or nothing if the person declined. */
export const ask = (question: Question): Promise<Answers | null> =>
  new Promise((answer) => show({ ...question, answer }));

/** Says something for a few seconds. */
export const say = (text: string): void => remark(text, "plain");

/** Does something and says so if it fails. */
export async function attempt<T>(what: () => Promise<T>, done?: string): Promise<T | undefined> {
  try {
    const result = await what();
    if (done) say(done);
    return result;
  } catch (error) {
    remark(describe(error), "bad");
    return undefined;
  }
}

export function DialogHost() {
  const [open, setOpen] = useState<Open[]>([]);
  useEffect(() => {
    show = (question) => setOpen((before) => [...before, question]);
    return () => {
      show = () => {};
    };
  }, []);
  const first = open[0];
  if (!first) return null;
  const answer = (given: Answers | null): void => {
    setOpen((before) => before.slice(1));
    first.answer(given);
  };
  return <Dialog key={first.title} question={first} answer={answer} />;
}

function Dialog({ question, answer }: { question: Question; answer: (given: Answers | null) => void }) {
  const box = useModal();
  const [given, setGiven] = useState<Answers>(() =>
    Object.fromEntries(
      (question.fields ?? []).map((field) => [field.name, field.value ?? field.options?.[0] ?? ""]),
    ),
  );
  const [typed, setTyped] = useState("");
  const missing = question.fields?.some((field) => !field.optional && given[field.name] === "") ?? false;
  const ready = !missing && (question.type === undefined || typed === question.type);
  return (
    <dialog
      ref={box}
      class="dialog"
      aria-labelledby="dialog-title"
      onCancel={(event) => {
        event.preventDefault();
        answer(null);
      }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (ready) answer(given);
        }}
      >
        <h2 id="dialog-title">{question.title}</h2>
        {question.text && <p>{question.text}</p>}
        {question.sample !== undefined && (
          <pre class="sample" tabIndex={0}>
            {question.sample}
          </pre>
        )}
        {question.fields?.map((field) => (
          <label key={field.name} class="labelled" for={`field-${field.name}`}>
            <span>{field.label}</span>
            {field.options ? (
              <select
                id={`field-${field.name}`}
                value={given[field.name]}
                onChange={(event) => setGiven({ ...given, [field.name]: event.currentTarget.value })}
              >
                {field.options.map((option) => (
                  <option key={option} value={option}>
                    {option || "(default)"}
                  </option>
                ))}
              </select>
            ) : (
              <input
                id={`field-${field.name}`}
                value={given[field.name]}
                placeholder={field.hint}
                onInput={(event) => setGiven({ ...given, [field.name]: event.currentTarget.value })}
              />
            )}
          </label>
        ))}
        {question.type !== undefined && (
          <label class="labelled">
            <span>
              Type <code>{question.type}</code> to go on
            </span>
            <input
              value={typed}
              onInput={(event) => setTyped(event.currentTarget.value)}
              autocomplete="off"
            />
          </label>
        )}
        <div class="dialog-actions">
          <Button onClick={() => answer(null)}>Cancel</Button>
          <button type="submit" class={`button ${question.danger ? "danger" : "main"}`} disabled={!ready}>
            {question.action}
          </button>
        </div>
      </form>
    </dialog>
  );
}

interface Remark {
  key: number;
  text: string;
  tone: "plain" | "bad";
}

const SHOWN = 6000;
let keys = 0;

export function RemarkHost() {
  const [remarks, setRemarks] = useState<Remark[]>([]);
  useEffect(() => {
    remark = (text, tone) => {
      keys += 1;
      const key = keys;
      setRemarks((before) =>
        [...before.filter((other) => other.text !== text), { key, text, tone }].slice(-4),
      );
      setTimeout(() => setRemarks((before) => before.filter((other) => other.key !== key)), SHOWN);
    };
    return () => {
      remark = () => {};
    };
  }, []);
  return (
    <div class="remarks" role="status" aria-live="polite">
      {remarks.map(({ key, text, tone }) => (
        <p key={key} class={`remark ${tone}`}>
          {tone === "bad" && <strong>Not done. </strong>}
          {text}
        </p>
      ))}
    </div>
  );
}
