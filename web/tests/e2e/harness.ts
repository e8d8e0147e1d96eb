/** The real binary and a real browser, for tests. */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { gunzipSync } from "node:zlib";
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Page,
} from "playwright-core";
import { afterAll, beforeAll, expect, onTestFailed } from "vitest";

const BINARY = process.env.STEAD_BIN ?? "";
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
/** Files of the app that replace those in the binary, for work on the app. */
const DIST = process.env.STEAD_WEB_DIST;
/** Whether the app is not the one that the binary embeds. */
export const fromDist = DIST !== undefined;
/** The timeout of each condition. Reaching it fails the test; no test measures by it. */
const TIMEOUT_MS = 45_000;

if (!existsSync(BINARY)) throw new Error("STEAD_BIN must be the path of a built `stead`");

/** Polls until the result is truthy and returns it; fails with the last result or error after the timeout. */
export async function until<T>(
  what: string,
  look: () => T | Promise<T>,
  within = TIMEOUT_MS,
): Promise<NonNullable<T>> {
  const deadline = Date.now() + within;
  let saw: unknown;
  for (;;) {
    try {
      saw = await look();
      if (saw) return saw as NonNullable<T>;
    } catch (error) {
      saw = error;
    }
    if (Date.now() > deadline) throw new Error(`waited for ${what}; last saw ${String(saw)}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

/** A server with a home of its own. It can be killed and started again on the same address. */
export class Server {
  home = "";
  url = "";
  link = "";
  #process: ChildProcess | null = null;
  #printed = "";
  #logged = "";
  readonly #more: string[];

  constructor(...more: string[]) {
    this.#more = more;
  }

  async start(): Promise<void> {
    this.#printed = "";
    if (this.home === "") this.home = mkdtempSync(join(tmpdir(), "stead-e2e-"));
    const listen = this.url === "" ? "127.0.0.1:0" : new URL(this.url).host;
    const process_ = spawn(BINARY, ["serve", "--listen", listen, "--home", this.home, ...this.#more], {
      env: { ...process.env, STEAD_PROVIDER: process.env.STEAD_PROVIDER ?? "local" },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#process = process_;
    const hear = (data: Buffer): void => {
      this.#printed += data.toString();
      this.#logged += data.toString();
    };
    process_.stdout.on("data", hear);
    process_.stderr.on("data", hear);
    this.url = await until("the server's address", () => {
      if (process_.exitCode !== null) throw new Error(`it ended: ${this.#printed}`);
      return /listening on (http:\/\/\S+)/.exec(this.#printed)?.[1];
    });
    this.link = await until(
      "the sign-in link",
      () => /(http:\/\/\S+\/login\?code=\S+)/.exec(this.#printed)?.[1],
    );
  }

  /** The output of the server since its last start. */
  get printed(): string {
    return this.#printed;
  }

  /** The output of all servers of the test, including killed ones. */
  get logged(): string {
    return this.#logged;
  }

  /** Collects the events of `/api/events`, across restarts, until `end` is called. */
  collectEvents(): { text: () => string; end: () => void } {
    let text = "";
    const stopping = new AbortController();
    const read = async (): Promise<void> => {
      const headers = { authorization: `Bearer ${this.token}` };
      const response = await fetch(`${this.url}/api/events?from=1`, { headers, signal: stopping.signal });
      for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) text += piece;
    };
    const follow = async (): Promise<void> => {
      while (!stopping.signal.aborted) {
        await read().catch(() => {});
        await new Promise((resolve) => setTimeout(resolve, 25));
      }
    };
    void follow();
    return { text: () => text, end: () => stopping.abort() };
  }

  get token(): string {
    return readFileSync(join(this.home, "token"), "utf8").trim();
  }

  /** Kills the server with SIGKILL. Shells keep running. */
  async kill(): Promise<void> {
    const process_ = this.#process;
    if (!process_) return;
    this.#process = null;
    process_.kill("SIGKILL");
    await until("the server's end", () => process_.exitCode !== null || process_.signalCode !== null);
  }

  /** Deletes the threads, so that no host outlives the test, then stops the server and removes its home. */
  async clear(): Promise<void> {
    if (this.home === "") return;
    const threads = await this.call<{ items: { thread_id: string }[] }>(
      "GET",
      "/api/threads?limit=1000",
    ).catch(() => null);
    for (const { thread_id } of threads?.items ?? []) {
      await this.call("DELETE", `/api/threads/${encodeURIComponent(thread_id)}`).catch(() => {});
    }
    await this.kill();
    // The disks of its workspaces are mounted.
    if (existsSync(join(this.home, "sandboxes"))) spawnSync(BINARY, ["namespace", "end", this.home]);
    rmSync(this.home, { recursive: true, force: true });
  }

  /** Calls the API with the token, like an agent. */
  async call<T = unknown>(method: string, path: string, body?: unknown): Promise<T> {
    const { token } = this;
    const response = await fetch(this.url + path, {
      method,
      headers: {
        authorization: `Bearer ${token}`,
        ...(body !== undefined && { "content-type": "application/json" }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return (text === "" ? undefined : JSON.parse(text)) as T;
  }

  /** Creates a thread. */
  async thread(thread: string, choices: object = {}): Promise<void> {
    await this.call("PUT", `/api/threads/${encodeURIComponent(thread)}`, choices);
  }

  async exec(
    thread: string,
    command: string,
  ): Promise<{ status: string; stdout: string; exit_code: number; terminal_id: string }> {
    return this.call("POST", `/api/threads/${encodeURIComponent(thread)}/exec`, { command });
  }

  /** Returns a link that signs one browser in. */
  async anotherLink(): Promise<string> {
    return (await this.call<{ url: string }>("POST", "/api/login-links")).url;
  }
}

const FLAGS = [
  "--no-sandbox",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--disable-quic",
  "--no-first-run",
  "--disable-dev-shm-usage",
  // Browsers treat a page that Playwright serves as one of another network, and would block its requests to this machine.
  ...(DIST ? ["--disable-features=LocalNetworkAccessChecks"] : []),
];

/**
 * Starts a browser. It has no WebGL by default, because software rendering is slow and tests can read the text of the
 * DOM renderer.
 */
export const launch = (webgl = false): Promise<Browser> =>
  chromium.launch({
    executablePath: CHROMIUM,
    args: [...FLAGS, ...(webgl ? ["--enable-unsafe-swiftshader"] : ["--disable-3d-apis"])],
  });

const KINDS: Record<string, string> = {
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".html": "text/html",
};

const asked = new Set<string>();

/** The calls of pages that the API document does not contain. */
async function undocumented(server: Server): Promise<string[]> {
  const { paths } = await server.call<{ paths: Record<string, Record<string, unknown>> }>(
    "GET",
    "/openapi.json",
  );
  const known = Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => ({
      method: method.toUpperCase(),
      path: new RegExp(`^${path.replace(/[.]/g, "\\.").replace(/\{[^}]+\}/g, "[^/]+")}$`),
    })),
  );
  return [...asked].filter((one) => {
    const [method, path] = one.split(" ") as [string, string];
    // The API document does not contain its own route.
    return path !== "/openapi.json" && !known.some((call) => call.method === method && call.path.test(path));
  });
}

/** A server and a browser for the tests of one file. At the end, all calls of pages must be in the API document. */
export function stage(): { server: Server; readonly browser: Browser } {
  const server = new Server();
  let browser: Browser | undefined;
  beforeAll(async () => {
    await server.start();
    browser = await launch();
  });
  afterAll(async () => {
    await browser?.close();
    const strange = await undocumented(server).catch((error: unknown) => [String(error)]);
    await server.clear();
    expect(strange).toEqual([]);
  });
  return {
    server,
    get browser() {
      if (!browser) throw new Error("the browser has not started");
      return browser;
    },
  };
}

/** The errors that the browser reported for each page. */
export const complaints = new WeakMap<Page, string[]>();

/** Prints the content of a page if its test fails. */
async function report(page: Page): Promise<void> {
  if (page.isClosed()) return;
  const shown = await page.locator("body").innerText({ timeout: 5000 }).catch(String);
  console.log(`${page.url()} shows:\n${shown}\n${complaints.get(page)?.join("\n") ?? ""}`);
}

/** Opens a browser window that is not signed in. */
export async function stranger(
  browser: Browser,
  server: Server,
  options: BrowserContextOptions = {},
): Promise<{ context: BrowserContext; page: Page }> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  if (DIST) await fromDisk(context, server, DIST);
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  onTestFailed(() => report(page));
  const heard: string[] = [];
  complaints.set(page, heard);
  page.on("console", (message) => {
    if (message.type() === "error" && !/Failed to load resource|WebSocket connection/.test(message.text()))
      heard.push(message.text());
  });
  page.on("pageerror", (error) => heard.push(String(error)));
  // Files of the app and navigations are not calls of the API.
  page.on("request", (request) => {
    const { origin, pathname } = new URL(request.url());
    if (origin === server.url && ["fetch", "xhr"].includes(request.resourceType()))
      asked.add(`${request.method()} ${pathname}`);
  });
  page.on("websocket", (socket) => void asked.add(`GET ${new URL(socket.url()).pathname}`));
  return { context, page };
}

/** Opens a browser window that is signed in. */
export async function person(
  browser: Browser,
  server: Server,
  options: BrowserContextOptions = {},
): Promise<{ context: BrowserContext; page: Page }> {
  const window = await stranger(browser, server, options);
  await window.page.goto(await server.anotherLink());
  await window.page.waitForURL((address) => !address.pathname.startsWith("/login"));
  await window.page.goto(`${server.url}/ui/threads`);
  return window;
}

async function fromDisk(context: BrowserContext, server: Server, dist: string): Promise<void> {
  const policy = (await fetch(`${server.url}/`)).headers.get("content-security-policy") ?? "";
  await context.route(
    ({ origin, pathname }) =>
      origin === server.url && (pathname === "/" || /^\/(ui|assets|icon[a-z-]*\.svg)/.test(pathname)),
    (route) => {
      const path = new URL(route.request().url()).pathname;
      const file = join(dist, /^\/(assets|icon)/.test(path) ? path : "index.html");
      const packed = existsSync(`${file}.gz`);
      if (!packed && !existsSync(file)) return route.fulfill({ status: 404, body: "" });
      return route.fulfill({
        body: packed ? gunzipSync(readFileSync(`${file}.gz`)) : readFileSync(file),
        headers: { "content-type": KINDS[extname(file)] ?? "text/plain", "content-security-policy": policy },
      });
    },
  );
}

/** The URL of a thread's page. */
export const threadPage = (server: Server, thread: string, tab = ""): string =>
  `${server.url}/ui/threads/${encodeURIComponent(thread)}${tab && `/${tab}`}`;

/** Returns the text on the screen of a terminal. */
export const screenText = (page: Page, nth = 0): Promise<string> =>
  page
    .locator(".terminal .xterm-rows, .player .xterm-rows")
    .nth(nth)
    .innerText()
    .then((text) => text.replaceAll("\u00a0", " "));

/** Shows the status in a thread's side panel; the browser remembers the choice. */
export const showStatus = (page: Page): Promise<void> => page.getByRole("tab", { name: "Status" }).click();

/** Waits until a terminal is connected. */
export const connected = (page: Page, nth = 0): Promise<unknown> =>
  until(
    "a connected terminal",
    async () => (await page.locator("section.terminal").nth(nth).getAttribute("data-link")) === "connected",
  );

/** Types a line into the focused terminal. */
export async function type(page: Page, text: string, nth = 0): Promise<void> {
  await page.locator(".terminal .xterm-helper-textarea").nth(nth).focus();
  await page.keyboard.type(`${text}\n`);
}

/** Waits for a text on a terminal's screen. */
export const shows = (page: Page, text: string | RegExp, nth = 0): Promise<unknown> =>
  until(`${String(text)} on the screen`, async () => {
    const seen = await screenText(page, nth);
    if (typeof text === "string" ? seen.includes(text) : text.test(seen)) return true;
    throw new Error(seen);
  });

/** Returns the text of a terminal with its scrollback, copied through the clipboard. */
export async function wholeText(page: Page): Promise<string> {
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.getByRole("button", { name: "More terminal actions" }).click();
  await page.getByRole("menuitem", { name: "Copy all text" }).click();
  await page.getByText("Copied.").waitFor();
  return page.evaluate(() => navigator.clipboard.readText());
}
