/**
 * The client with what needs Node: finding a local server, and directories.
 *
 * @packageDocumentation
 */

import { Stead as CoreStead } from "../client.js";
import { type ConnectOptions, findServer } from "./connect.js";

export * from "../index.js";
export type { ConnectOptions } from "./connect.js";
export {
  downloadDirectory,
  type TransferOptions,
  type TransferSummary,
  uploadDirectory,
} from "./directory.js";

/** A client of one server, which {@link Stead.connect} finds. */
export class Stead extends CoreStead {
  /**
   * Connects to a server: the one in `options`, else the one of `STEAD_URL` and `STEAD_TOKEN`, else the one that runs
   * in the local home directory (`STEAD_HOME`, by default `~/.stead`). The token of the home directory is only sent to
   * its own server and to this machine.
   *
   * @example
   * ```ts
   * const client = await Stead.connect();
   * ```
   */
  static async connect(options: ConnectOptions = {}): Promise<Stead> {
    return new Stead(await findServer(options));
  }
}
