/** Finds a server the way the command line does. */

import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import type { ClientOptions } from "../transport.js";
import { pinnedFetch } from "./pinned.js";

/** Where a server listens unless it was configured otherwise. */
const DEFAULT_URL = "http://127.0.0.1:7832";

/** Options of {@link Stead.connect}. */
export interface ConnectOptions extends Partial<ClientOptions> {
  /** Home directory of the server; `STEAD_HOME` or `~/.stead` by default. */
  home?: string | undefined;
}

/** Returns the URL and token of a server. Sends no request. */
export async function findServer(options: ConnectOptions): Promise<ClientOptions> {
  const { home: givenHome, ...rest } = options;
  const home = givenHome ?? (process.env.STEAD_HOME || join(homedir(), ".stead"));
  const givenUrl = options.url ?? (process.env.STEAD_URL || undefined);
  const own = await line(join(home, "address"));
  const url = givenUrl ?? own ?? DEFAULT_URL;
  const givenToken = options.token ?? (process.env.STEAD_TOKEN || undefined);
  const token = givenToken ?? (mayReceiveHomeToken(url, own) ? await line(join(home, "token")) : undefined);
  // The home is private: a local server may have a certificate that no authority signed.
  const pem = givenUrl === undefined ? await text(join(home, "certificate.pem")) : undefined;
  const fetch =
    options.fetch ?? (pem !== undefined && url.startsWith("https:") ? pinnedFetch(pem) : undefined);
  return { ...rest, url, token, fetch };
}

/** Whether the token of a home may be sent to a URL: to the home's own server and to this machine, no other. */
function mayReceiveHomeToken(url: string, own: string | undefined): boolean {
  if (!URL.canParse(url)) return false;
  const { hostname, origin } = new URL(url);
  const isLoopback = hostname === "localhost" || hostname === "[::1]" || /^127(\.\d+){3}$/.test(hostname);
  return isLoopback || (own !== undefined && new URL(own).origin === origin);
}

/** Returns the content of a file; `undefined` if it does not exist or is empty. */
async function text(path: string): Promise<string | undefined> {
  try {
    return (await readFile(path, "utf8")) || undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

const line = async (path: string): Promise<string | undefined> => (await text(path))?.trim() || undefined;
