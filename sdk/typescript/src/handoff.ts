/** Hand-offs: an agent asks a person for input, a secret or an approval. */

import { Listing } from "./listing.js";
import type { CallOptions, KeyedOptions, Transport } from "./transport.js";
import type { HandoffInfo, PageOptions } from "./types.js";

/** What an agent asks for. A `secret` is typed into the program that reads the terminal; no client can read it. */
export type HandoffKind = "input" | "secret" | "approval";

export type HandoffStatus = "open" | "answered" | "declined" | "expired";

/** A question to a person. */
export interface AskOptions extends KeyedOptions {
  kind: HandoffKind;
  /** What the person is asked, and why. */
  reason: string;
  /** Answers to choose from. */
  options?: string[] | undefined;
  /** Time until the hand-off expires; a day by default. */
  timeoutMs?: number | undefined;
}

/** An answer to a hand-off: `approve` or `option` to an approval, `text` to an input, `secret` to a secret. */
export interface AnswerOptions extends KeyedOptions {
  approve?: boolean | undefined;
  option?: string | undefined;
  text?: string | undefined;
  secret?: string | undefined;
}

/** How long one request waits; the server answers after this time at the latest. */
const WAIT_MS = 30_000;

/** All hand-offs of the server. */
export class Handoffs {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Asks a person, and returns without waiting for the answer.
   *
   * @example
   * ```ts
   * const asked = await client.handoffs.ask(terminal.id, { kind: "approval", reason: "Deploy?" });
   * const { status, answer } = await client.handoffs.wait(asked.handoffId);
   * if (status === "answered" && answer?.approve) await terminal.exec("make deploy");
   * ```
   */
  ask(terminalId: string, question: AskOptions): Promise<HandoffInfo> {
    const { kind, reason, options, timeoutMs, ...rest } = question;
    const body = { kind, reason, options: options ?? [], timeout_ms: timeoutMs ?? null };
    const request = { ...rest, path: { id: terminalId }, body };
    return this.#transport.call("post", "/api/terminals/{id}/handoffs", request);
  }

  /** Lists hand-offs, newest first. */
  list(
    options: PageOptions & { status?: HandoffStatus; threadId?: string; terminalId?: string } = {},
  ): Listing<HandoffInfo> {
    const { status, threadId, terminalId, limit, signal } = options;
    return new Listing(options.cursor, (cursor) => {
      const query = { status, thread_id: threadId, terminal_id: terminalId, limit, cursor };
      return this.#transport.call("get", "/api/handoffs", { query, signal });
    });
  }

  get(id: string, options: CallOptions = {}): Promise<HandoffInfo> {
    return this.#transport.call("get", "/api/handoffs/{id}", { ...options, path: { id } });
  }

  /**
   * Waits until a person answered or declined, or until the hand-off expired. After `timeoutMs`, returns the hand-off
   * as it is.
   */
  async wait(id: string, options: CallOptions & { timeoutMs?: number } = {}): Promise<HandoffInfo> {
    const { timeoutMs = Number.POSITIVE_INFINITY, signal } = options;
    const deadline = performance.now() + timeoutMs;
    for (;;) {
      const left = Math.ceil(Math.min(WAIT_MS, Math.max(0, deadline - performance.now())));
      const request = { path: { id }, query: { wait_ms: left }, signal };
      const handoff = await this.#transport.call("get", "/api/handoffs/{id}", request);
      if (handoff.status !== "open" || performance.now() >= deadline) return handoff;
    }
  }

  /**
   * Answers as a person. A secret is typed into the terminal and kept nowhere; the server refuses it with `not_waiting`
   * if no program waits for it, and with `echo_on` if the terminal would show it.
   */
  answer(id: string, answer: AnswerOptions): Promise<HandoffInfo> {
    const { approve, option, text, secret, ...rest } = answer;
    const body = {
      approve: approve ?? null,
      option: option ?? null,
      text: text ?? null,
      secret: secret ?? null,
    };
    return this.#transport.call("post", "/api/handoffs/{id}/answer", { ...rest, path: { id }, body });
  }

  /** Declines as a person. */
  decline(id: string, options: KeyedOptions & { text?: string } = {}): Promise<HandoffInfo> {
    const { text, ...rest } = options;
    const body = { text: text ?? null };
    return this.#transport.call("post", "/api/handoffs/{id}/decline", { ...rest, path: { id }, body });
  }
}
