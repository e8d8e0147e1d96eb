/** Asks which ports the programs of a thread listen on. */

import { type ListeningPort, listeningPorts } from "../lib/ports.ts";
import { getText, isProblem, path } from "./client.ts";

/** The tables of the network that the first process of the sandbox is in. */
const TABLES = ["/proc/1/net/tcp", "/proc/1/net/tcp6"];

/** Reads the kernel's tables through the files of the thread, which wakes its sandbox. */
export async function portsOf(thread: string): Promise<ListeningPort[]> {
  const read = (table: string): Promise<string> =>
    getText(`${path("api", "threads", thread, "fs", "read")}?path=${encodeURIComponent(table)}`);
  const [four, six] = await Promise.all([
    read(TABLES[0]!),
    // A kernel without IPv6 has only the first table.
    read(TABLES[1]!).catch((error: unknown) => {
      if (isProblem(error, 404)) return "";
      throw error;
    }),
  ]);
  return listeningPorts(`${four}\n${six}`);
}
