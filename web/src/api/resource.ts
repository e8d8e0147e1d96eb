/** A part of the server's state in a view: asked for once, asked for again when an event says that it changed. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { type Happening, onHappening } from "./events.ts";

export interface Resource<T> {
  value: T | undefined;
  error: unknown;
  /** Asks again. */
  refresh(): void;
}

/**
 * Runs asks one at a time and not too close together: however often it is poked meanwhile, exactly one more follows,
 * so the last answer is never older than the last poke, and a busy server is not asked for every event.
 */
export class Latest<T> {
  readonly #ask: () => Promise<T>;
  readonly #done: (value: T | undefined, error: unknown) => void;
  readonly #rest: () => Promise<void>;
  #busy = false;
  #again = false;
  #stopped = false;

  /** `rest` is waited for between an answer and the next ask. */
  constructor(
    ask: () => Promise<T>,
    done: (value: T | undefined, error: unknown) => void,
    rest: () => Promise<void>,
  ) {
    this.#ask = ask;
    this.#done = done;
    this.#rest = rest;
  }

  poke(): void {
    if (this.#stopped) return;
    if (this.#busy) {
      this.#again = true;
      return;
    }
    this.#busy = true;
    const settled = async (value: T | undefined, error: unknown): Promise<void> => {
      if (this.#stopped) return;
      this.#done(value, error);
      await this.#rest();
      this.#busy = false;
      if (this.#again) {
        this.#again = false;
        this.poke();
      }
    };
    this.#ask().then(
      (value) => settled(value, undefined),
      (error: unknown) => settled(undefined, error ?? new Error("failed")),
    );
  }

  stop(): void {
    this.#stopped = true;
  }
}

/** Milliseconds between two asks for the same. */
const REST_MS = 200;

/** `key` names what is asked for; `concerns` says which events touch it. A key of `null` asks for nothing. */
export function useResource<T>(
  key: string | null,
  ask: () => Promise<T>,
  concerns: (what: Happening) => boolean,
  rest = REST_MS,
): Resource<T> {
  const [held, setHeld] = useState<{ key: string | null; value: T | undefined; error: unknown }>({
    key,
    value: undefined,
    error: undefined,
  });
  const latest = useRef<Latest<T> | null>(null);
  const askNow = useRef(ask);
  const concernsNow = useRef(concerns);
  askNow.current = ask;
  concernsNow.current = concerns;

  useEffect(() => {
    if (key === null) return;
    const asking = new Latest<T>(
      () => askNow.current(),
      (value, error) =>
        setHeld((before) => ({
          key,
          // A failed ask keeps what was there.
          value: error === undefined || before.key !== key ? value : before.value,
          error,
        })),
      () => new Promise((resolve) => setTimeout(resolve, rest)),
    );
    latest.current = asking;
    asking.poke();
    const stop = onHappening((what) => {
      if (what.name === "*" || concernsNow.current(what)) asking.poke();
    });
    return () => {
      asking.stop();
      stop();
    };
  }, [key]);

  const refresh = useCallback(() => latest.current?.poke(), []);
  const current = held.key === key;
  return { value: current ? held.value : undefined, error: current ? held.error : undefined, refresh };
}
