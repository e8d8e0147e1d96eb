import { Terminal } from "@xterm/xterm";
import { expect, test } from "vitest";
import { limitCounts } from "../../src/terminal/limits.ts";

function open(): { terminal: Terminal; write: (text: string) => Promise<void>; frames: () => number } {
  const terminal = new Terminal({ allowProposedApi: true, cols: 80, rows: 24, scrollback: 1000 });
  let frames = 0;
  limitCounts(terminal, async () => {
    frames += 1;
  });
  const write = (text: string): Promise<void> => new Promise((resolve) => terminal.write(text, resolve));
  return { terminal, write, frames: () => frames };
}

const screen = (terminal: Terminal): string[] => {
  const { active } = terminal.buffer;
  return Array.from({ length: terminal.rows }, (_, row) =>
    active.getLine(active.baseY + row)!.translateToString(true),
  );
};

test.each([..."STLMIZb"])(
  "a count of two thousand million in CSI %s is cut to a screenful",
  async (final) => {
    const { terminal, write } = open();
    await write(Array.from({ length: 24 }, (_, row) => `row ${row}`).join("\r\n"));
    await write("\x1b[Hx");
    const began = performance.now();
    await write(`\x1b[2000000000${final}`);
    expect(performance.now() - began).toBeLessThan(500);
    if ("ST".includes(final)) expect(screen(terminal).join("")).toBe("");
    if (final === "b") expect(screen(terminal)[0]).toBe("x".repeat(80));
  },
);

test("small and missing counts keep their meaning", async () => {
  const { terminal, write } = open();
  await write("one\r\ntwo\r\nthree\r\nfour");
  await write("\x1b[S");
  expect(screen(terminal).slice(0, 3)).toEqual(["two", "three", "four"]);
  await write("\x1b[2T");
  expect(screen(terminal).slice(0, 4)).toEqual(["", "", "two", "three"]);
  await write("\x1b[H\x1b[0Mx\x1b[3b");
  expect(screen(terminal).slice(0, 2)).toEqual(["xxxx", "two"]);
});

test("many large counts yield to frames in between", async () => {
  const { write, frames } = open();
  await write("\x1b[99S".repeat(1000));
  // 42 of these scroll more than 1000 lines.
  expect(frames()).toBe(Math.floor(1000 / 42));
});
