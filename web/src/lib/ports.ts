/** The addresses at which a browser sees the ports of sandboxes. */

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
