import { Terminal } from "@xterm/xterm";
import { expect, test } from "vitest";
import { WholeCharacters } from "../../src/terminal/utf8.ts";

const TEXT = "A—B ’x’ “y” 。、日本 é 𝄞 😀 ﷽ end";
const bytes = new TextEncoder().encode(TEXT);

/** Returns the text that a terminal shows for chunks, with or without cutting them at character boundaries. */
async function shown(chunks: Uint8Array[], whole = new WholeCharacters()): Promise<string> {
  const terminal = new Terminal({ allowProposedApi: true, cols: 80, rows: 2 });
  for (const chunk of chunks) {
    await new Promise<void>((resolve) => terminal.write(whole.push(chunk), resolve));
  }
  return terminal.buffer.active.getLine(0)!.translateToString(true);
}

test("a text that is split anywhere arrives complete", async () => {
  for (let cut = 0; cut <= bytes.length; cut += 1) {
    expect(await shown([bytes.subarray(0, cut), bytes.subarray(cut)]), `cut at ${cut}`).toBe(TEXT);
  }
  expect(await shown([...bytes].map((byte) => Uint8Array.of(byte)))).toBe(TEXT);
});

test("invalid bytes are not kept back, and do not change what follows", () => {
  const check = (chunks: number[][], expected: number[][]): void => {
    const whole = new WholeCharacters();
    expect(chunks.map((chunk) => [...whole.push(Uint8Array.from(chunk))])).toEqual(expected);
  };
  check([[0x80, 0x80, 0x80], [0x41]], [[0x80, 0x80, 0x80], [0x41]]);
  check([[0xff], [0xc0], [0x41]], [[0xff], [0xc0], [0x41]]);
  check([[0xe2, 0x80], [0x41]], [[], [0xe2, 0x80, 0x41]]);
  check([[0xf0, 0x9f], [0x98], [0x80, 0x42]], [[], [], [0xf0, 0x9f, 0x98, 0x80, 0x42]]);
});

test("an incomplete character is forgotten on request", () => {
  const whole = new WholeCharacters();
  whole.push(Uint8Array.of(0xe2, 0x80));
  whole.clear();
  expect([...whole.push(Uint8Array.of(0x41))]).toEqual([0x41]);
});
