/** HTTP requests to the server. The browser is signed in by a cookie; no secret passes through here. */

/** One invalid field of a request's body. */
export interface FieldError {
  /** Where it is in the body, as a JSON pointer. */
  pointer: string;
  detail: string;
}

/** An error response of the server. */
export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly errors: FieldError[];

  constructor(status: number, code: string, detail: string, errors: FieldError[]) {
    super(detail);
    this.name = "Problem";
    this.status = status;
    this.code = code;
    this.errors = errors;
  }
}

/** Whether an error is a response with that status. */
export const isProblem = (error: unknown, status: number): boolean =>
  error instanceof Problem && error.status === status;

/** A detail of the server as a sentence. */
function sentence(text: string): string {
  const trimmed = text.trim();
  if (trimmed === "") return "";
  return trimmed.charAt(0).toUpperCase() + trimmed.slice(1) + (/[.!?…]$/.test(trimmed) ? "" : ".");
}

const lastSegment = (pointer: string): string => pointer.split("/").at(-1) ?? "";

/** The reason of an error, for a person. */
export function describe(error: unknown): string {
  if (!(error instanceof Problem)) return "The server cannot be reached. Check that it is running.";
  if (error.errors.length === 0) return sentence(error.message);
  return error.errors
    .map(({ pointer, detail }) => sentence(pointer === "" ? detail : `${lastSegment(pointer)}: ${detail}`))
    .join(" ");
}

/** Splits the invalid fields of an error by the given names; `rest` has those that match none. */
export function fieldErrors(
  error: unknown,
  names: readonly string[],
): { byField: Record<string, string>; rest: string[] } {
  const byField: Record<string, string> = {};
  const rest: string[] = [];
  for (const { pointer, detail } of error instanceof Problem ? error.errors : []) {
    const name = lastSegment(pointer);
    if (names.includes(name)) byField[name] = sentence(detail);
    else rest.push(sentence(detail));
  }
  return { byField, rest };
}

const signedOutListeners = new Set<() => void>();

/** Calls `listener` whenever the server answers that this browser is not signed in. */
export function onSignedOut(listener: () => void): () => void {
  signedOutListeners.add(listener);
  return () => signedOutListeners.delete(listener);
}

/** Reads an error response. */
export function problemOf(status: number, body: Record<string, unknown>): Problem {
  const code = typeof body.code === "string" ? body.code : String(status);
  const detail = typeof body.detail === "string" ? body.detail : `the server answered ${status}`;
  const errors = Array.isArray(body.errors) ? body.errors.filter(isFieldError) : [];
  return new Problem(status, code, detail, errors);
}

const isFieldError = (value: unknown): value is FieldError => {
  const { pointer, detail } = (value ?? {}) as Partial<FieldError>;
  return typeof pointer === "string" && typeof detail === "string";
};

async function request(path: string, init: RequestInit): Promise<Response> {
  const response = await fetch(path, { credentials: "same-origin", cache: "no-store", ...init });
  if (response.ok) return response;
  if (response.status === 401) for (const listener of signedOutListeners) listener();
  const isJson = response.headers.get("content-type")?.includes("json") ?? false;
  const body = isJson ? ((await response.json().catch(() => ({}))) as Record<string, unknown>) : {};
  throw problemOf(response.status, body);
}

async function parseJson<T>(response: Response): Promise<T> {
  const text = await response.text();
  return (text === "" ? undefined : JSON.parse(text)) as T;
}

/** How long an answer in JSON may take. Without a limit, a lost connection would leave a view waiting. */
const ANSWER_TIMEOUT_MS = 60_000;

export async function get<T>(path: string): Promise<T> {
  return parseJson<T>(await request(path, { signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS) }));
}

export async function getText(path: string): Promise<string> {
  return (await request(path, {})).text();
}

export async function getBytes(path: string): Promise<{ bytes: Uint8Array; headers: Headers }> {
  const response = await request(path, {});
  return { bytes: new Uint8Array(await response.arrayBuffer()), headers: response.headers };
}

export async function send<T>(
  method: "POST" | "PUT" | "PATCH" | "DELETE",
  path: string,
  body?: unknown,
): Promise<T> {
  const init: RequestInit = { method };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { "content-type": "application/json" };
  }
  return parseJson<T>(await request(path, init));
}

/** Sends a body that is not JSON. */
export async function sendBytes<T>(
  method: "PUT",
  path: string,
  body: string | Blob,
  headers: Record<string, string>,
): Promise<T> {
  return parseJson<T>(
    await request(path, {
      method,
      body,
      headers: { "content-type": "application/octet-stream", ...headers },
    }),
  );
}

interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

/** Reads a list page by page, up to `max` items. */
export async function list<T>(path: string, max = 500): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | null = null;
  do {
    const address = new URL(path, location.origin);
    if (cursor) address.searchParams.set("cursor", cursor);
    const page: Page<T> | T[] = await get(address.pathname + address.search);
    if (Array.isArray(page)) return page;
    items.push(...page.items);
    cursor = page.next_cursor ?? null;
  } while (cursor && items.length < max);
  return items.slice(0, max);
}

/** A path with every part escaped: clients choose their ids freely. */
export const path = (...parts: string[]): string => `/${parts.map(encodeURIComponent).join("/")}`;
