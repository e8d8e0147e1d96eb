/** What the tests share: a server of their own, and waiting for conditions. */

import assert from "node:assert/strict";
import { after, before, test as nodeTest, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Stead, type Thread } from "../dist/index.js";
import { type Server, startServer } from "./server.mjs";

const DEADLINE_MS = 30_000;
const TEST_TIMEOUT_MS = 120_000;

/** A test with a timeout, so that the server of its file is ended in any case. */
export function test(name: string, run: (context: TestContext) => Promise<void> | void): void;
export function test(
  name: string,
  options: { skip?: string | boolean },
  run: (context: TestContext) => Promise<void> | void,
): void;
export function test(name: string, ...rest: unknown[]): void {
  const run = rest.at(-1) as (context: TestContext) => Promise<void>;
  const options = rest.length > 1 ? (rest[0] as object) : {};
  nodeTest(name, { timeout: TEST_TIMEOUT_MS, ...options }, run);
}

/** The server of a test file. */
export class Setup {
  server!: Server;
  client!: Stead;
  #threads = 0;

  /** A thread that no other test uses. */
  thread(): Thread {
    return this.client.threads.open(`t${++this.#threads}`);
  }
}

/** Starts a server before the tests of a file, and ends it after them. */
export function withServer(provider?: string, flags: () => Promise<string[]> = async () => []): Setup {
  const setup = new Setup();
  before(async () => {
    setup.server = await startServer(provider, ...(await flags()));
    setup.client = new Stead({ url: setup.server.url, token: setup.server.token });
  });
  after(() => setup.server.close());
  return setup;
}

/** Waits for a condition; reports what it saw last if that takes too long. */
export async function until<T>(
  what: string,
  condition: () => Promise<T | undefined> | T | undefined,
): Promise<T> {
  const deadline = performance.now() + DEADLINE_MS;
  for (;;) {
    const seen = await condition();
    if (seen) return seen;
    if (performance.now() > deadline)
      assert.fail(`waited ${DEADLINE_MS} ms for ${what}; last saw ${String(seen)}`);
    await sleep(20);
  }
}

/** Collects all values of a stream. */
export async function collect<T>(values: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const value of values) all.push(value);
  return all;
}
