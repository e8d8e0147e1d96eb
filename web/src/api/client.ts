/** HTTP to our own server. Signed in by cookie; no secret passes through here. */

/** An answer of the server that is not a success, as it describes it. */
export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly retryAfter: number | null;

  constructor(status: number, code: string, detail: string, retryAfter: number | null) {
    super(detail);
    this.name = "Problem";
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

/** Whether an error is the server's answer with that status. */
export const isProblem = (error: unknown, status: number): boolean =>
  error instanceof Problem && error.status === status;

/** Words for an error that a person can read. */
export const describe = (error: unknown): string =>
  error instanceof Problem ? error.message : "The server cannot be reached.";

type Watcher = () => void;
const signedOut = new Set<Watcher>();

/** Calls `act` whenever the server says that this browser is not signed in. */
export function onSignedOut(act: Watcher): () => void {
  signedOut.add(act);
  return () => signedOut.delete(act);
}

async function call(path: string, init: RequestInit): Promise<Response> {
  const response = await fetch(path, { credentials: "same-origin", cache: "no-store", ...init });
  if (response.ok) return response;
  if (response.status === 401) for (const act of signedOut) act();
  const after = Number(response.headers.get("retry-after"));
  const kind = response.headers.get("content-type") ?? "";
  const said = kind.includes("json")
    ? ((await response.json().catch(() => ({}))) as Record<string, unknown>)
    : {};
  const code = typeof said.code === "string" ? said.code : String(response.status);
  const detail = typeof said.detail === "string" ? said.detail : `the server answered ${response.status}`;
  throw new Problem(response.status, code, detail, after > 0 ? after : null);
}

async function answer<T>(response: Response): Promise<T> {
  const text = await response.text();
  return (text === "" ? undefined : JSON.parse(text)) as T;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return answer<T>(await call(path, signal ? { signal } : {}));
}

export async function getText(path: string): Promise<string> {
  return (await call(path, {})).text();
}

export async function getBytes(path: string): Promise<{ bytes: Uint8Array; headers: Headers }> {
  const response = await call(path, {});
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
  return answer<T>(await call(path, init));
}

export interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

/** Up to `most` items of a list, however many pages that takes. */
export async function list<T>(path: string, most = 500): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | null = null;
  do {
    const address = new URL(path, location.origin);
    if (cursor) address.searchParams.set("cursor", cursor);
    const page: Page<T> | T[] = await get(address.pathname + address.search);
    if (Array.isArray(page)) return page;
    items.push(...page.items);
    cursor = page.next_cursor ?? null;
  } while (cursor && items.length < most);
  return items.slice(0, most);
}

/** A path with every part escaped: ids are chosen by clients. */
export const path = (...parts: string[]): string => `/${parts.map(encodeURIComponent).join("/")}`;
