/** Ports that programs of a sandbox listen on, from the kernel's tables, and the addresses of their previews. */

export interface ListeningPort {
  port: number;
  /** Whether it takes connections from the sandbox itself only. */
  loopbackOnly: boolean;
}

/** The state of a listening socket in `/proc/net/tcp`. */
const LISTEN = "0A";
const LOOPBACK = new Set([
  "0100007F",
  "00000000000000000000000001000000",
  "0000000000000000FFFF00000100007F",
]);

/** Reads the tables `/proc/net/tcp` and `/proc/net/tcp6`, in the order of the ports. */
export function listeningPorts(tables: string): ListeningPort[] {
  const found = new Map<number, ListeningPort>();
  for (const line of tables.split("\n")) {
    const [, local, , state] = line.trim().split(/\s+/);
    const [address, digits] = local?.split(":") ?? [];
    if (state !== LISTEN || address === undefined || !/^[0-9A-F]{4}$/.test(digits ?? "")) continue;
    const port = Number.parseInt(digits!, 16);
    const loopbackOnly = LOOPBACK.has(address) && (found.get(port)?.loopbackOnly ?? true);
    found.set(port, { port, loopbackOnly });
  }
  return [...found.values()].sort((a, b) => a.port - b.port);
}

interface Page {
  protocol: string;
  hostname: string;
  port: string;
}

/**
 * The address at which a browser sees a port of a sandbox; null if there is none. The server shows the ports of
 * sandboxes that were created through the API of E2B, at `PORT-SANDBOX.NAME`.
 */
export function previewAddress(
  page: Page,
  sandbox: { sandbox_id: string; origin?: string } | null,
  port: number,
): string | null {
  if (sandbox?.origin !== "e2b") return null;
  const isLoopback = page.hostname === "localhost" || /^127\.|^\[::1\]$/.test(page.hostname);
  // An IP address has no subdomains.
  if (!isLoopback && (/^[\d.]+$/.test(page.hostname) || page.hostname.startsWith("["))) return null;
  const name = isLoopback ? "localhost" : page.hostname;
  return `${page.protocol}//${port}-${sandbox.sandbox_id}.${name}${page.port && `:${page.port}`}/`;
}
