/** Tar archives, written entry by entry. Long names and large sizes are in extended headers (POSIX.1-2001). */

export interface TarEntry {
  /** Relative; the name of a directory ends with a slash. */
  name: string;
  size: number;
  /** Milliseconds since 1970. */
  modifiedAt: number;
  isExecutable: boolean;
}

const BLOCK = 512;
const encoder = new TextEncoder();

const octal = (value: number, length: number): string => value.toString(8).padStart(length - 1, "0");

function header(name: Uint8Array, entry: TarEntry, type: string): Uint8Array {
  const block = new Uint8Array(BLOCK);
  const put = (at: number, text: string): void => block.set(encoder.encode(text), at);
  block.set(name.subarray(0, 100), 0);
  put(100, type === "5" || entry.isExecutable ? "0000755" : "0000644");
  put(108, octal(0, 8));
  put(116, octal(0, 8));
  // A size of 8 GiB and more does not fit; no entry is that large.
  put(124, octal(entry.size, 12));
  put(136, octal(Math.max(0, Math.floor(entry.modifiedAt / 1000)), 12));
  put(148, " ".repeat(8));
  put(156, type);
  put(257, "ustar\u{0}00");
  const sum = block.reduce((total, byte) => total + byte, 0);
  put(148, `${octal(sum, 7)}\0 `);
  return block;
}

/** A record of an extended header; its length counts its own digits. */
function record(key: string, value: string): Uint8Array {
  const rest = encoder.encode(` ${key}=${value}\n`);
  let length = rest.length;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  const whole = new Uint8Array(length);
  whole.set(encoder.encode(String(length)));
  whole.set(rest, length - rest.length);
  return whole;
}

/** The zeros after `size` bytes, up to the next block. */
export const tarPadding = (size: number): Uint8Array<ArrayBuffer> =>
  new Uint8Array((BLOCK - (size % BLOCK)) % BLOCK);

/** What precedes the content of an entry. */
export function tarHeader(entry: TarEntry): Uint8Array<ArrayBuffer>[] {
  const name = encoder.encode(entry.name);
  const type = entry.name.endsWith("/") ? "5" : "0";
  const own = header(name, entry, type) as Uint8Array<ArrayBuffer>;
  // Programs disagree on the encoding of names outside ASCII, except in extended headers.
  if (name.length <= 100 && name.every((byte) => byte < 0x80)) return [own];
  const path = record("path", entry.name) as Uint8Array<ArrayBuffer>;
  const about = { ...entry, size: path.length, isExecutable: false };
  const extended = header(encoder.encode("PaxHeader"), about, "x") as Uint8Array<ArrayBuffer>;
  return [extended, path, tarPadding(path.length), own];
}

/** The end of an archive. */
export const TAR_END: Uint8Array<ArrayBuffer> = new Uint8Array(2 * BLOCK);
