/** Dialogs and toasts, opened from anywhere and rendered in one place. */

import { useEffect, useId, useState } from "preact/hooks";
import { describe, fieldErrors } from "../api/client.ts";
import { Button, useModal } from "./parts.tsx";

export type Answers = Record<string, string>;

interface DialogField {
  name: string;
  label: string;
  hint?: string;
  value?: string;
  options?: string[];
  optional?: boolean;
}

export interface Question {
  title: string;
  text?: string;
  /** Something long or exact, shown in fixed width. */
  sample?: string;
  /** The label of the button that confirms. */
  action: string;
  danger?: boolean;
  fields?: DialogField[];
  /** A text that must be typed before the action is enabled. */
  type?: string;
  /** Runs on confirmation. The dialog stays open until it succeeds, and shows what failed. */
  submit?: (answers: Answers) => Promise<unknown>;
  /** What to say when `submit` fails: "Couldn't create the thread." */
  failed?: string;
}

type OpenDialog = Question & { id: number; answer: (answers: Answers | null) => void };

let open: (dialog: OpenDialog) => void = () => {};
let show: (text: string, tone: "plain" | "bad") => void = () => {};
let lastId = 0;

/** Opens a dialog. Returns the values of its fields, or null if it was cancelled. */
export const ask = (question: Question): Promise<Answers | null> =>
  new Promise((answer) => {
    lastId += 1;
    open({ ...question, id: lastId, answer });
  });

/** Shows a text for a few seconds. */
export const toast = (text: string): void => show(text, "plain");

/** Runs `act`, and shows `done` or, if it fails, `failed` with the reason. Returns undefined if it failed. */
export async function attempt<T>(
  failed: string,
  act: () => Promise<T>,
  done?: string,
): Promise<T | undefined> {
  try {
    const result = await act();
    if (done) toast(done);
    return result;
  } catch (error) {
    show(`${failed} ${describe(error)}`, "bad");
    return undefined;
  }
}

export function DialogHost() {
  const [dialogs, setDialogs] = useState<OpenDialog[]>([]);
  useEffect(() => {
    open = (dialog) => setDialogs((before) => [...before, dialog]);
    return () => {
      open = () => {};
    };
  }, []);
  const first = dialogs[0];
  if (!first) return null;
  const answer = (answers: Answers | null): void => {
    setDialogs((before) => before.slice(1));
    first.answer(answers);
  };
  return <Dialog key={first.id} question={first} answer={answer} />;
}

interface Failure {
  text: string;
  /** By field name. */
  fields: Record<string, string>;
}

const initialAnswers = (fields: DialogField[]): Answers =>
  Object.fromEntries(fields.map((field) => [field.name, field.value ?? field.options?.[0] ?? ""]));

/** The reason of a failure, split into what belongs to a field and what does not. */
function explain(question: Question, error: unknown): Failure {
  const names = (question.fields ?? []).map((field) => field.name);
  const { byField, rest } = fieldErrors(error, names);
  const reasons = rest.length > 0 ? rest : Object.keys(byField).length > 0 ? [] : [describe(error)];
  return { text: [question.failed ?? "", ...reasons].join(" ").trim(), fields: byField };
}

function Dialog({ question, answer }: { question: Question; answer: (answers: Answers | null) => void }) {
  const box = useModal();
  const fields = question.fields ?? [];
  const [answers, setAnswers] = useState(() => initialAnswers(fields));
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState<Failure | null>(null);
  const missing = fields.some((field) => !field.optional && answers[field.name] === "");
  const ready = !busy && !missing && (question.type === undefined || typed === question.type);

  const confirm = async (): Promise<void> => {
    if (!ready) return;
    if (!question.submit) {
      answer(answers);
      return;
    }
    setBusy(true);
    try {
      await question.submit(answers);
      answer(answers);
    } catch (error) {
      setFailure(explain(question, error));
      setBusy(false);
    }
  };
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
          void confirm();
        }}
      >
        <h2 id="dialog-title">{question.title}</h2>
        {question.text && <p>{question.text}</p>}
        {question.sample !== undefined && (
          <pre class="sample" tabIndex={0}>
            {question.sample}
          </pre>
        )}
        {fields.map((field) => (
          <FieldRow
            key={field.name}
            field={field}
            value={answers[field.name] ?? ""}
            error={failure?.fields[field.name]}
            onChange={(value) => setAnswers({ ...answers, [field.name]: value })}
          />
        ))}
        {question.type !== undefined && (
          <label class="labelled">
            <span>
              Type <code>{question.type}</code> to confirm
            </span>
            <input
              value={typed}
              onInput={(event) => setTyped(event.currentTarget.value)}
              autocomplete="off"
            />
          </label>
        )}
        {failure && failure.text !== "" && (
          <p class="failure" role="alert">
            {failure.text}
          </p>
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

interface FieldRowProps {
  field: DialogField;
  value: string;
  error: string | undefined;
  onChange: (value: string) => void;
}

function FieldRow({ field, value, error, onChange }: FieldRowProps) {
  const id = useId();
  const described = error === undefined ? {} : { "aria-invalid": true, "aria-describedby": `${id}-error` };
  return (
    <div class="labelled">
      <label for={id}>{field.label}</label>
      {field.options ? (
        <select
          id={id}
          value={value}
          {...described}
          onChange={(event) => onChange(event.currentTarget.value)}
        >
          {field.options.map((option) => (
            <option key={option} value={option}>
              {option || "(default)"}
            </option>
          ))}
        </select>
      ) : (
        <input
          id={id}
          value={value}
          placeholder={field.hint}
          {...described}
          onInput={(event) => onChange(event.currentTarget.value)}
        />
      )}
      {error !== undefined && (
        <span id={`${id}-error`} class="field-error">
          {error}
        </span>
      )}
    </div>
  );
}

interface Toast {
  key: number;
  text: string;
  tone: "plain" | "bad";
}

const TOAST_DURATION_MS = 6000;
const MAX_TOASTS = 4;

export function ToastHost() {
  const [toasts, setToasts] = useState<Toast[]>([]);
  useEffect(() => {
    show = (text, tone) => {
      lastId += 1;
      const key = lastId;
      setToasts((before) =>
        [...before.filter((other) => other.text !== text), { key, text, tone }].slice(-MAX_TOASTS),
      );
      setTimeout(() => setToasts((before) => before.filter((other) => other.key !== key)), TOAST_DURATION_MS);
    };
    return () => {
      show = () => {};
    };
  }, []);
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.map(({ key, text, tone }) => (
        <p key={key} class={`toast ${tone}`}>
          {text}
        </p>
      ))}
    </div>
  );
}
