import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import {
  ConnectionError,
  OutcomeUnknownError,
  RateLimitError,
  Stead,
  UnavailableError,
} from "../dist/index.js";
import { test } from "./harness.js";

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** Runs an action against a server that answers the n-th request with the n-th handler, and the last one from then on. */
async function answering(
  handlers: Handler[],
  act: (client: Stead) => Promise<void>,
): Promise<IncomingMessage[]> {
  const requests: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    requests.push(request);
    const handler = handlers[Math.min(requests.length, handlers.length) - 1]!;
    request.resume().on("end", () => handler(request, response));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  try {
    await act(new Stead({ url: `http://127.0.0.1:${port}`, token: "t", retryTimeoutMs: 3000 }));
  } finally {
    server.closeAllConnections();
    server.close();
  }
  return requests;
}

const json =
  (status: number, body: unknown, headers: Record<string, string> = {}): Handler =>
  (_, response) => {
    response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
  };
const problem = (status: number, code: string, headers?: Record<string, string>): Handler =>
  json(status, { status, code, detail: "d" }, headers);
const cut: Handler = (request) => request.socket.destroy();
const page = json(200, { items: [], next_cursor: null });

test("a 429 and a 503 with Retry-After are repeated, and those without are not", async () => {
  const overloaded = problem(503, "overloaded", { "retry-after": "0", "x-request-id": "r1" });
  const limited = problem(429, "too_many_requests", { "retry-after": "0" });
  const repeated = await answering([overloaded, limited, page], async (client) => {
    assert.deepEqual((await client.threads.list()).items, []);
  });
  assert.equal(repeated.length, 3);
  const refused = await answering([problem(429, "too_many_terminals")], async (client) => {
    await assert.rejects(client.threads.list(), RateLimitError);
  });
  assert.equal(refused.length, 1);
  const failed = await answering([problem(503, "overloaded", { "x-request-id": "r2" })], async (client) => {
    await assert.rejects(client.threads.list(), (error) => {
      assert.ok(error instanceof UnavailableError);
      assert.equal(error.requestId, "r2");
      return true;
    });
  });
  assert.equal(failed.length, 1);
});

test("a POST is repeated with the same key", async () => {
  const receipt = { command_id: "c", terminal_id: "t", status: "finished", exit_code: 0, changes: {} };
  const requests = await answering([cut, cut, json(200, receipt)], async (client) => {
    assert.equal((await client.threads.open("t").exec("true")).commandId, "c");
  });
  const keys = new Set(requests.map((request) => request.headers["idempotency-key"]));
  assert.equal(requests.length, 3);
  assert.equal(keys.size, 1);
  assert.ok(!keys.has(undefined));
});

test("a conditional write is not repeated when its outcome is unknown", async () => {
  const requests = await answering([cut, json(201, {})], async (client) => {
    await assert.rejects(
      client.threads.open("t").files.write("/f", "x", { ifAbsent: true }),
      ConnectionError,
    );
  });
  assert.equal(requests.length, 1);
});

test("a stream that was sent is not repeated", async () => {
  const requests = await answering([cut, json(201, {})], async (client) => {
    const body = new Response("x").body!;
    await assert.rejects(client.threads.open("t").files.write("/f", body), ConnectionError);
  });
  assert.equal(requests.length, 1);
});

test("client errors are not repeated, and neither are redirects followed", async () => {
  const unknown = await answering([problem(409, "outcome_unknown")], async (client) => {
    await assert.rejects(client.threads.open("t").addMessage("user", "x"), OutcomeUnknownError);
  });
  assert.equal(unknown.length, 1);
  const redirect: Handler = (_, response) => response.writeHead(307, { location: "/elsewhere" }).end();
  const redirected = await answering([redirect], async (client) => {
    await assert.rejects(client.threads.list());
  });
  assert.ok(redirected.every((request) => !request.url?.includes("elsewhere")));
});

test("an abort ends the wait between two attempts", async () => {
  const busy = problem(503, "overloaded", { "retry-after": "2" });
  await answering([busy], async (client) => {
    const abort = new AbortController();
    const waiting = client.threads.list({ signal: abort.signal });
    setTimeout(() => abort.abort(), 50);
    await assert.rejects(waiting, { name: "AbortError" });
  });
});
