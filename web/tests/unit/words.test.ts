import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

/** Phrases that readers do not understand without knowing the code. */
const UNCLEAR = [
  /\bnobody\b/i,
  /\bsomebody\b/i,
  /\bwhoever\b/i,
  /\byou (drive|watch)\b/i,
  /\bhand back\b/i,
  /\bfind or do\b/i,
  /\bnot done\b/i,
  /\bnothing fits\b/i,
  /\bno such\b/i,
  /\bbegins? anew\b/i,
  /\btaken? back\b/i,
  /\btouch(ed)? the session\b/i,
  /\bas the system\b/i,
  /\bmay reach\b/i,
];

test("the texts and comments of the app are in plain English", () => {
  const source = join(import.meta.dirname, "../../src");
  const found = readdirSync(source, { recursive: true, encoding: "utf8" })
    .filter((file) => /\.tsx?$/.test(file))
    .flatMap((file) =>
      readFileSync(join(source, file), "utf8")
        .split("\n")
        .map((line) => `${file}: ${line.trim()}`),
    )
    .filter((line) => UNCLEAR.some((phrase) => phrase.test(line)));
  expect(found).toEqual([]);
});
