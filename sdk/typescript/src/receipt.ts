/** Receipts of commands: reading them, and waiting for the last one. */

import { decodeBase64, decodeText } from "./bytes.js";
import type { CamelKeys } from "./case.js";
import type { components } from "./schema.js";
import { sleep } from "./time.js";
import type { Transport } from "./transport.js";
import type { CommandStatus, ExecResult, StateChanges } from "./types.js";

/** A receipt as the server sends it. */
export type Receipt = CamelKeys<components["schemas"]["CommandReceipt"]>;

/** A command and its terminal. */
export interface CommandAddress {
  id: string;
  terminalId: string;
}

/** How many commands of a terminal are searched for one whose status is needed. */
const LATEST_COMMANDS = 10;
/** The delays between two requests for the receipt of a running command. */
const FIRST_POLL_MS = 20;
const MAX_POLL_MS = 1000;
const POLL_GROWTH = 1.5;

export function execResult(receipt: Receipt): ExecResult {
  const text = (plain: string | null | undefined, base64: string | null | undefined): string =>
    plain ?? (base64 ? decodeText(decodeBase64(base64)) : "");
  return {
    ...receipt,
    status: receipt.status as CommandStatus,
    ok: receipt.status === "finished" && receipt.exitCode === 0,
    exitCode: receipt.exitCode ?? null,
    signal: receipt.signal ?? null,
    stdout: text(receipt.stdout, receipt.stdoutBase64),
    stderr: text(receipt.stderr, receipt.stderrBase64),
    changes: receipt.changes as unknown as StateChanges,
  };
}

export function readReceipt(
  transport: Transport,
  id: string,
  signal: AbortSignal | undefined,
): Promise<Receipt> {
  return transport.call("get", "/api/commands/{id}", { path: { id }, signal });
}

/** Waits until a command has ended. `wake` ends the delay that is running when it resolves. */
export async function waitForEnd(
  transport: Transport,
  { id, terminalId }: CommandAddress,
  signal: AbortSignal | undefined,
  wake?: Promise<void>,
): Promise<Receipt> {
  let delay = FIRST_POLL_MS;
  let waking = wake?.then(() => {
    waking = undefined;
    delay = FIRST_POLL_MS;
  });
  for (;;) {
    if (!(await isRunning(transport, { id, terminalId }, signal))) {
      const receipt = await readReceipt(transport, id, signal);
      if (receipt.status !== "running") return receipt;
    }
    const slept = sleep(delay, signal);
    slept.catch(() => {});
    await Promise.race(waking ? [slept, waking] : [slept]);
    delay = Math.min(delay * POLL_GROWTH, MAX_POLL_MS);
  }
}

/** Whether a command is among the latest of its terminal and has not ended. A receipt would contain its output. */
async function isRunning(
  transport: Transport,
  { id, terminalId }: CommandAddress,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  const request = { path: { id: terminalId }, query: { limit: LATEST_COMMANDS }, signal };
  const { items } = await transport.call("get", "/api/terminals/{id}/commands", request);
  const status = items.find((item) => item.commandId === id)?.status;
  return status === "running" || status === "queued";
}
