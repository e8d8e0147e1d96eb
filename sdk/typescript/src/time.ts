/** Waiting: back-off, sleeping, and signals that combine a caller's signal with a timeout. */

/** The delays between attempts: exponential, with jitter. */
const FIRST_DELAY_MS = 50;
const MAX_DELAY_MS = 2000;

/** How long to wait before the given retry, counted from 0. */
export function retryDelay(retry: number): number {
  const delay = Math.min(FIRST_DELAY_MS * 2 ** Math.min(retry, 10), MAX_DELAY_MS);
  return delay * (0.5 + Math.random() / 2);
}

/** Waits, or throws the reason of the signal. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const abort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** An abort controller that follows a caller's signal and can have a timeout. `release` ends both. */
export class Scope {
  readonly #controller = new AbortController();
  readonly #parent: AbortSignal | undefined;
  readonly #follow = (): void => this.abort(this.#parent?.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(parent: AbortSignal | undefined) {
    this.#parent = parent;
    if (parent?.aborted) this.#follow();
    else parent?.addEventListener("abort", this.#follow, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(reason?: unknown): void {
    this.#controller.abort(reason);
  }

  /** Starts or restarts the timeout. */
  timeout(ms: number | undefined): void {
    clearTimeout(this.#timer);
    if (ms === undefined) return;
    const expired = (): void => this.abort(new DOMException(`no data for ${ms} ms`, "TimeoutError"));
    this.#timer = setTimeout(expired, ms);
  }

  release(): void {
    clearTimeout(this.#timer);
    this.#parent?.removeEventListener("abort", this.#follow);
  }
}
