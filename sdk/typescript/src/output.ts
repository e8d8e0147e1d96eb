/** The output of a command: events in order, each byte once, whichever connection brings it. */

import type { ExecResult } from "./types.js";

export type OutputName = "stdout" | "stderr";

export const OUTPUTS: readonly OutputName[] = ["stdout", "stderr"];

/** A piece of the output of a command. */
export interface OutputEvent {
  type: OutputName;
  /** Offset of the first byte in its stream. */
  offset: number;
  data: Uint8Array;
  /** The data as text. A character that is split between two events belongs to the later one. */
  text: string;
}

/** Output that the server could not keep. */
export interface GapEvent {
  type: "gap";
  stream: OutputName;
  from: number;
  to: number;
}

/** The command has ended. */
export interface ExitEvent {
  type: "exit";
  result: ExecResult;
}

/** The next byte of one stream, and the text decoder that has read all before it. */
class Cursor {
  offset = 0;
  readonly #name: OutputName;
  #decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  constructor(name: OutputName, offset: number) {
    this.#name = name;
    this.offset = offset;
  }

  /** Returns what is new in some bytes, after a gap if they begin later than expected. */
  *accept(offset: number, data: Uint8Array): Generator<OutputEvent | GapEvent> {
    if (offset > this.offset) yield* this.skip(offset);
    const fresh = data.subarray(this.offset - offset);
    if (fresh.length === 0) return;
    const start = this.offset;
    this.offset += fresh.length;
    yield {
      type: this.#name,
      offset: start,
      data: fresh,
      text: this.#decoder.decode(fresh, { stream: true }),
    };
  }

  *skip(to: number): Generator<OutputEvent | GapEvent> {
    if (to <= this.offset) return;
    yield* this.flush();
    yield { type: "gap", stream: this.#name, from: this.offset, to };
    this.offset = to;
  }

  /** Returns the replacement of a character that stays incomplete. */
  *flush(): Generator<OutputEvent> {
    const text = this.#decoder.decode();
    if (text !== "") yield { type: this.#name, offset: this.offset, data: new Uint8Array(), text };
  }
}

/** The position in both streams of a command. */
export class Cursors {
  readonly stdout: Cursor;
  readonly stderr: Cursor;

  constructor(from: { stdout?: number | undefined; stderr?: number | undefined } = {}) {
    this.stdout = new Cursor("stdout", from.stdout ?? 0);
    this.stderr = new Cursor("stderr", from.stderr ?? 0);
  }

  *flush(): Generator<OutputEvent> {
    yield* this.stdout.flush();
    yield* this.stderr.flush();
  }
}
