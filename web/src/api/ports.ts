/** Asks which ports the programs of a thread listen on, and for links to them. */

import { list, path, send } from "./client.ts";

/** The TCP ports in ascending order. A thread without an instance has none, and is not started. */
export async function portsOf(thread: string): Promise<number[]> {
  const items = await list<{ port: number }>(path("api", "threads", thread, "ports"));
  return items.map(({ port }) => port);
}

/** Creates a link that opens a port without signing in, for a day. */
export async function linkTo(thread: string, port: number): Promise<string> {
  const link = await send<{ url: string }>(
    "POST",
    path("api", "threads", thread, "ports", String(port), "links"),
    {},
  );
  return link.url;
}
