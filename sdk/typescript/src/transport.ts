/**
 * HTTP requests: authentication, retries, deadlines and streams.
 *
 * A request is repeated only if that is safe: a `GET`, a `PUT` or `DELETE` without a precondition, a `POST` with an
 * `Idempotency-Key`, or a 429 or 503 with `Retry-After`, which means that nothing was done. Retries stop at a deadline.
 */

import { randomId } from "./bytes.js";
import { type CamelKeys, camelKeys } from "./case.js";
import { ConnectionError, InvalidRequestError, responseError, SteadError } from "./errors.js";
import type { paths } from "./schema.js";
import { EventParser, type ServerEvent } from "./sse.js";
import { retryDelay, Scope, sleep } from "./time.js";

/** How long a request is repeated while the server cannot be reached. */
const RETRY_TIMEOUT_MS = 30_000;
/** How long one attempt may take. A repeated `POST` continues to wait for the first one. */
const ATTEMPT_TIMEOUT_MS = { read: 90_000, write: 300_000 };
/** The server sends a heartbeat every 10 s; a stream without one is dead. */
const IDLE_TIMEOUT_MS = 30_000;

/** Options of a client. */
export interface ClientOptions {
  /** URL of the server, such as `http://127.0.0.1:7832`. */
  url: string;
  /** The server's token. In a browser that is signed in by cookie, none is needed. */
  token?: string | undefined;
  /** Replaces the global `fetch`, for example to use a proxy or another certificate. */
  fetch?: typeof fetch | undefined;
  /** How long requests are repeated while the server cannot be reached; 30 seconds by default, 0 for never. */
  retryTimeoutMs?: number | undefined;
}

/** An option of every call. */
export interface CallOptions {
  /** Ends the wait for a response. What the server has begun to do, it completes. */
  signal?: AbortSignal | undefined;
}

/** Options of every call that creates or changes something. */
export interface KeyedOptions extends CallOptions {
  /** The `Idempotency-Key`; a random one by default. A call with the same key and arguments is done once. */
  idempotencyKey?: string | undefined;
}

type Query = Record<string, string | number | boolean | undefined | null>;

export interface SendOptions extends KeyedOptions {
  query?: Query | undefined;
  json?: unknown;
  body?: BodyInit | undefined;
  headers?: Record<string, string> | undefined;
  /**
   * What a repetition does: `same` if the request has the same effect when it is sent twice, `key` if it needs an
   * `Idempotency-Key` for that, and `never` if it must not be repeated. By default `key` for a `POST`, else `same`.
   */
  repeat?: "same" | "key" | "never" | undefined;
}

type Method = "get" | "put" | "post" | "delete" | "patch";
type PathOf<M extends Method> = {
  [P in keyof paths]: paths[P] extends { [Name in M]: object } ? P : never;
}[keyof paths];
type OperationOf<M extends Method, P extends keyof paths> = paths[P] extends { [Name in M]: infer O }
  ? O
  : never;
type PathParameters<O> = O extends { parameters: { path: infer T } } ? T : undefined;
type QueryParameters<O> = O extends { parameters: { query?: infer T } } ? T : undefined;
type RequestBody<O> = O extends { requestBody?: infer R } ? NonNullable<R> : never;
type JsonBody<O> = [RequestBody<O>] extends [never]
  ? undefined
  : RequestBody<O> extends { content: { "application/json": infer T } }
    ? T
    : undefined;
type Success<O> = O extends { responses: infer R } ? R[keyof R & (200 | 201)] : never;
type JsonResponse<O> = Success<O> extends { content: { "application/json": infer T } } ? T : undefined;
type OrUndefined<T> = { [Name in keyof T]: T[Name] | undefined };

/** The arguments of an operation of the API document, named as there. */
export interface OperationOptions<O> extends Omit<SendOptions, "query" | "json" | "body"> {
  path?: PathParameters<O> | undefined;
  query?: OrUndefined<QueryParameters<O>> | undefined;
  body?: JsonBody<O> | undefined;
}

/** The requests of one client. */
export class Transport {
  readonly url: string;
  readonly retryTimeoutMs: number;
  readonly #token: string | undefined;
  readonly #fetch: typeof fetch;

  constructor(options: ClientOptions) {
    this.url = serverUrl(options.url);
    this.#token = options.token;
    this.#fetch = options.fetch ?? ((input, init) => fetch(input, init));
    this.retryTimeoutMs = options.retryTimeoutMs ?? RETRY_TIMEOUT_MS;
  }

  /** Calls an operation of the API document and returns its JSON. */
  call<M extends Method, P extends PathOf<M>>(
    method: M,
    path: P,
    options: OperationOptions<OperationOf<M, P>>,
  ): Promise<CamelKeys<JsonResponse<OperationOf<M, P>>>> {
    const { path: parameters, query, body, ...rest } = options;
    const send: SendOptions = { ...rest, query: query as Query | undefined, json: body };
    return this.json(method, fillPath(path, (parameters ?? {}) as Query), send);
  }

  /** Sends a request and returns the JSON of the response; `undefined` if it has none. */
  async json<T>(method: Method, path: string, options: SendOptions): Promise<T> {
    const text = await this.send(method, path, options, (response) => response.text());
    return (text === "" ? undefined : camelKeys(JSON.parse(text))) as T;
  }

  /** Sends a request until it succeeds, fails for good or reaches the deadline. */
  async send<T>(
    method: Method,
    path: string,
    options: SendOptions,
    read: (response: Response) => Promise<T>,
  ): Promise<T> {
    return this.#repeat(method, path, options, async (request, scope) => {
      scope.timeout(attemptTimeout(method));
      try {
        const response = await this.#fetch(request.url, { ...request.init, signal: scope.signal });
        return response.ok ? { ok: await read(response) } : { failed: await responseError(response) };
      } finally {
        scope.release();
      }
    });
  }

  /** Sends a request, and returns its response as soon as the headers are there. */
  async open(method: Method, path: string, options: SendOptions): Promise<ByteStream> {
    return this.#repeat(method, path, options, async (request, scope) => {
      scope.timeout(attemptTimeout(method));
      try {
        const response = await this.#fetch(request.url, { ...request.init, signal: scope.signal });
        if (response.ok) return { ok: new ByteStream(response, scope) };
        const failed = await responseError(response);
        scope.release();
        return { failed };
      } catch (error) {
        scope.release();
        throw error;
      }
    });
  }

  async #repeat<T>(
    method: Method,
    path: string,
    options: SendOptions,
    attempt: (request: PreparedRequest, scope: Scope) => Promise<{ ok: T } | { failed: SteadError }>,
  ): Promise<T> {
    const { signal } = options;
    const request = this.#prepare(method, path, options);
    const retries = new Retries(this.retryTimeoutMs);
    for (;;) {
      signal?.throwIfAborted();
      let error: SteadError;
      try {
        const outcome = await attempt(request, new Scope(signal));
        if ("ok" in outcome) return outcome.ok;
        error = outcome.failed;
        const isBusy = error.status === 429 || error.status === 503;
        const nothingDone = isBusy && error.retryAfterMs !== undefined;
        if (!nothingDone || !request.replayable) throw error;
      } catch (cause) {
        signal?.throwIfAborted();
        if (cause instanceof SteadError) throw cause;
        error = this.connectionError(cause);
        if (!request.repeatable) throw error;
      }
      await retries.wait(error, signal);
    }
  }

  /** The error of a connection that could not be opened or was cut. */
  connectionError(cause: unknown): ConnectionError {
    const detail = `the connection to ${this.url} failed: ${describe(cause)}`;
    return new ConnectionError({ code: "connection", detail, status: 0, cause });
  }

  #prepare(method: Method, path: string, options: SendOptions): PreparedRequest {
    const repeat = options.repeat ?? (method === "post" ? "key" : "same");
    const headers: Record<string, string> = { accept: "application/json", ...options.headers };
    if (this.#token !== undefined) headers.authorization = `Bearer ${this.#token}`;
    if (repeat === "key") headers["idempotency-key"] = options.idempotencyKey ?? randomId();
    const init: RequestInit & { duplex?: "half" } = {
      method: method.toUpperCase(),
      headers,
      redirect: "manual",
    };
    if (options.json !== undefined) {
      headers["content-type"] = "application/json";
      init.body = JSON.stringify(options.json);
    } else if (options.body !== undefined) {
      headers["content-type"] = "application/octet-stream";
      init.body = options.body;
      // Required by the standard for bodies that are streams.
      if (options.body instanceof ReadableStream) init.duplex = "half";
    }
    const replayable = !(options.body instanceof ReadableStream);
    const url = `${this.url}${path}${queryString(options.query)}`;
    return { url, init, replayable, repeatable: replayable && repeat !== "never" };
  }
}

const attemptTimeout = (method: Method): number =>
  method === "get" ? ATTEMPT_TIMEOUT_MS.read : ATTEMPT_TIMEOUT_MS.write;

interface PreparedRequest {
  url: string;
  init: RequestInit;
  /** Whether the body can be sent again. */
  replayable: boolean;
  /** Whether the request may be sent again when its outcome is unknown. */
  repeatable: boolean;
}

/** Repetitions with back-off until a deadline, which starts with the first failure in a row. */
export class Retries {
  readonly #timeoutMs: number;
  #failingSince: number | undefined;
  #count = 0;

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }

  /** Notes that the server was reached. */
  succeeded(): void {
    this.#failingSince = undefined;
    this.#count = 0;
  }

  /** Waits before the next attempt, or throws the error if the deadline would pass. */
  async wait(error: SteadError, signal: AbortSignal | undefined): Promise<void> {
    const now = performance.now();
    this.#failingSince ??= now;
    const delay = Math.max(retryDelay(this.#count++), error.retryAfterMs ?? 0);
    if (now + delay > this.#failingSince + this.#timeoutMs) throw error;
    await sleep(delay, signal);
  }
}

/** The body of a response, as it arrives. */
export class ByteStream {
  readonly #response: Response;
  readonly #scope: Scope;

  constructor(response: Response, scope: Scope) {
    this.#response = response;
    this.#scope = scope;
  }

  header(name: string): string | null {
    return this.#response.headers.get(name);
  }

  /** The chunks of the body. Fails if the server is silent for too long. */
  async *chunks(): AsyncGenerator<Uint8Array<ArrayBuffer>, void, undefined> {
    const reader = this.#response.body?.getReader();
    try {
      while (reader) {
        this.#scope.timeout(IDLE_TIMEOUT_MS);
        const { done, value } = await reader.read();
        // The time that the caller spends with a chunk does not count.
        this.#scope.timeout(undefined);
        if (done) return;
        yield value as Uint8Array<ArrayBuffer>;
      }
    } finally {
      this.close();
    }
  }

  async *events(): AsyncGenerator<ServerEvent, void, undefined> {
    const parser = new EventParser();
    for await (const chunk of this.chunks()) yield* parser.parse(chunk);
  }

  /** Closes the connection. */
  close(): void {
    this.#scope.release();
    this.#scope.abort();
  }
}

/** Fills the parameters of a path, `/api/threads/{tid}`. */
export function fillPath(template: string, parameters: Query): string {
  return template.replace(/\{(\w+)\}/g, (_, name: string) => segment(String(parameters[name])));
}

/** A path segment. `fetch` would resolve `..` and request another resource. */
export function segment(id: string): string {
  if (id === "" || id === "." || id === "..") {
    throw new InvalidRequestError({
      code: "invalid_path",
      detail: `${JSON.stringify(id)} is not an id`,
      status: 0,
    });
  }
  return encodeURIComponent(id);
}

function queryString(query: Query | undefined): string {
  if (query === undefined) return "";
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null) parameters.append(name, String(value));
  }
  const text = parameters.toString();
  return text === "" ? "" : `?${text}`;
}

function serverUrl(text: string): string {
  const invalid = (why: string): InvalidRequestError =>
    new InvalidRequestError({ code: "invalid_url", detail: `${JSON.stringify(text)}: ${why}`, status: 0 });
  let url: URL;
  try {
    url = new URL(text);
  } catch (cause) {
    throw new InvalidRequestError({
      code: "invalid_url",
      detail: `${JSON.stringify(text)}: expected http://HOST:PORT or https://HOST:PORT`,
      status: 0,
      cause,
    });
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") throw invalid("expected http: or https:");
  if (url.username !== "" || url.password !== "") throw invalid("must not contain a user");
  if (url.search !== "" || url.hash !== "") throw invalid("must not contain a query or fragment");
  return `${url.origin}${url.pathname.replace(/\/+$/, "")}`;
}

/** The innermost message: `fetch` only reports that it failed. */
function describe(error: unknown): string {
  let innermost = error;
  while (innermost instanceof Error && innermost.cause instanceof Error) innermost = innermost.cause;
  if (!(innermost instanceof Error)) return String(innermost);
  const code = (innermost as { code?: unknown }).code;
  return innermost.message || (typeof code === "string" ? code : innermost.name);
}
