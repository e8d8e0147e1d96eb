/** Keeps characters whole on their way to xterm. */

const NOTHING = new Uint8Array(0);

/** Bytes of a UTF-8 character, by its first byte; 1 for a byte that begins none. */
function lengthOf(first: number): number {
  if (first >= 0xf0 && first <= 0xf4) return 4;
  if (first >= 0xe0 && first < 0xf0) return 3;
  if (first >= 0xc2 && first < 0xe0) return 2;
  return 1;
}

/** Returns where the last character begins if it is incomplete, else the length. */
function completeLength(bytes: Uint8Array): number {
  for (let at = bytes.length - 1; at >= Math.max(0, bytes.length - 3); at -= 1) {
    const byte = bytes[at]!;
    if (byte >= 0x80 && byte < 0xc0) continue;
    return at + lengthOf(byte) > bytes.length ? at : bytes.length;
  }
  return bytes.length;
}

/**
 * Cuts a stream of bytes at the ends of UTF-8 characters.
 *
 * xterm 6.0.0 loses a character when a write ends inside it, after a continuation byte of 0x80: the dash (E2
 * 80 94), typographic quotes and the Chinese full stop (E3 80 82) are such.
 */
export class WholeCharacters {
  #rest: Uint8Array = NOTHING;

  /** Returns the whole characters so far; an incomplete one at the end waits for its other bytes. */
  push(bytes: Uint8Array): Uint8Array {
    let all = bytes;
    if (this.#rest.length > 0) {
      all = new Uint8Array(this.#rest.length + bytes.length);
      all.set(this.#rest);
      all.set(bytes, this.#rest.length);
    }
    const end = completeLength(all);
    this.#rest = end === all.length ? NOTHING : all.slice(end);
    return end === all.length ? all : all.subarray(0, end);
  }

  /** Forgets an incomplete character. */
  clear(): void {
    this.#rest = NOTHING;
  }
}
