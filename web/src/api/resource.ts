/** A part of the server's state in a view: fetched once, and again when an event says that it changed. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Problem } from "./client.ts";
import { type AppEvent, onEvent } from "./events.ts";

export interface Resource<T> {
  value: T | undefined;
  error: unknown;
  /** Fetches it again. */
  refresh(): void;
}

const MIN_RETRY_DELAY_MS = 1000;
const MAX_RETRY_DELAY_MS = 15_000;

/** Whether the same request may succeed later. */
const isTemporary = (error: unknown): boolean =>
  error !== undefined && (!(error instanceof Problem) || error.status === 429 || error.status >= 500);

/**
 * Runs fetches one at a time with a pause in between. However often a refresh is requested meanwhile, exactly
 * one more fetch follows: the last answer is never older than the last request, and a busy server is not
 * asked for every event. A fetch that failed for a reason that may pass is repeated.
 */
export class Refresher<T> {
  readonly #fetch: () => Promise<T>;
  readonly #done: (value: T | undefined, error: unknown) => void;
  readonly #pause: () => Promise<void>;
  #busy = false;
  #requested = false;
  #stopped = false;
  #failures = 0;
  #retry: ReturnType<typeof setTimeout> | undefined;

  /** `pause` is awaited between an answer and the next fetch. */
  constructor(
    fetch: () => Promise<T>,
    done: (value: T | undefined, error: unknown) => void,
    pause: () => Promise<void>,
  ) {
    this.#fetch = fetch;
    this.#done = done;
    this.#pause = pause;
  }

  refresh(): void {
    if (this.#stopped) return;
    clearTimeout(this.#retry);
    if (this.#busy) {
      this.#requested = true;
      return;
    }
    this.#busy = true;
    this.#fetch().then(
      (value) => this.#settle(value, undefined),
      (error: unknown) => this.#settle(undefined, error ?? new Error("failed")),
    );
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#retry);
  }

  async #settle(value: T | undefined, error: unknown): Promise<void> {
    if (this.#stopped) return;
    this.#done(value, error);
    this.#failures = isTemporary(error) ? this.#failures + 1 : 0;
    await this.#pause();
    this.#busy = false;
    if (this.#requested) {
      this.#requested = false;
      this.refresh();
    } else if (this.#failures > 0 && !this.#stopped) {
      const delay = Math.min(MIN_RETRY_DELAY_MS * 2 ** (this.#failures - 1), MAX_RETRY_DELAY_MS);
      this.#retry = setTimeout(() => this.refresh(), delay);
    }
  }
}

/** Milliseconds between two fetches of the same resource. */
const REFRESH_PAUSE_MS = 200;

/** `key` identifies the resource, and null stands for none; `isAffected` says which events change it. */
export function useResource<T>(
  key: string | null,
  fetch: () => Promise<T>,
  isAffected: (event: AppEvent) => boolean,
  pauseMs = REFRESH_PAUSE_MS,
): Resource<T> {
  const [state, setState] = useState<{ key: string | null; value: T | undefined; error: unknown }>({
    key,
    value: undefined,
    error: undefined,
  });
  const refresher = useRef<Refresher<T> | null>(null);
  // The latest functions, without starting over at every render.
  const latest = useRef({ fetch, isAffected });
  latest.current = { fetch, isAffected };

  useEffect(() => {
    if (key === null) return;
    const current = new Refresher<T>(
      () => latest.current.fetch(),
      (value, error) =>
        setState((before) => ({
          key,
          // A failed fetch keeps the value.
          value: error === undefined || before.key !== key ? value : before.value,
          error,
        })),
      () => new Promise((resolve) => setTimeout(resolve, pauseMs)),
    );
    refresher.current = current;
    current.refresh();
    const unsubscribe = onEvent((event) => {
      if (event.name === "*" || latest.current.isAffected(event)) current.refresh();
    });
    return () => {
      current.stop();
      unsubscribe();
    };
  }, [key]);

  const refresh = useCallback(() => refresher.current?.refresh(), []);
  const isCurrent = state.key === key;
  return {
    value: isCurrent ? state.value : undefined,
    error: isCurrent ? state.error : undefined,
    refresh,
  };
}
