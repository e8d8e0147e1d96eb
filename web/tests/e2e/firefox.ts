/** Debian's Firefox, driven over WebDriver BiDi. */

import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import { type Browser, firefox } from "playwright-core";

const FIREFOX = process.env.FIREFOX ?? "/usr/bin/firefox-esr";

/** Playwright cannot evaluate anything in a page with our content security policy in older versions. */
const MIN_VERSION = 153;

/** Whether this machine has a Firefox that the tests can use. */
export const hasFirefox = majorVersion() >= MIN_VERSION;

function majorVersion(): number {
  const { stdout } = spawnSync(FIREFOX, ["--version"], { encoding: "utf8", timeout: 30_000 });
  return Number(/ (\d+)\./.exec(stdout ?? "")?.[1] ?? 0);
}

interface Socket {
  send(data: string, ...rest: unknown[]): unknown;
  emit(event: string, data: Buffer, isBinary: boolean): boolean;
}

/** Commands that Debian's version lacks. No test in Firefox depends on their effect. */
const UNKNOWN = new Set(["emulation.setMediaFeaturesOverride"]);

/** Answers such commands in place of the browser: without an answer, Playwright creates no context. */
function answerUnknownCommands(): void {
  const { ws } = createRequire(import.meta.url)("playwright-core/lib/utilsBundle") as {
    ws: { prototype: Socket };
  };
  const send = ws.prototype.send;
  ws.prototype.send = function (this: Socket, data: string, ...rest: unknown[]): unknown {
    const { id, method } = JSON.parse(data) as { id: number; method: string };
    if (!UNKNOWN.has(method)) return send.call(this, data, ...rest);
    const answer = Buffer.from(JSON.stringify({ type: "success", id, result: {} }));
    return setImmediate(() => this.emit("message", answer, false));
  };
}

let patched = false;

export function launchFirefox(): Promise<Browser> {
  if (!patched) answerUnknownCommands();
  patched = true;
  return firefox.launch({
    channel: "moz-firefox",
    executablePath: FIREFOX,
    firefoxUserPrefs: {
      // No suggestions or spell checks between a key and the terminal, and no background requests.
      "browser.formfill.enable": false,
      "datareporting.policy.dataSubmissionEnabled": false,
      "network.captive-portal-service.enabled": false,
      "network.connectivity-service.enabled": false,
      "webgl.disabled": true,
    },
  });
}
