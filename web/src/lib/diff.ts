/** Differences between two states of a terminal. */

export type Change =
  | { name: string; kind: "added"; to: string }
  | { name: string; kind: "removed"; from: string }
  | { name: string; kind: "changed"; from: string; to: string };

/** What differs between two sets of named texts, by name. `null` means absent. */
export function changesBetween(
  before: Record<string, string | null>,
  after: Record<string, string | null>,
): Change[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
  return names.flatMap((name): Change[] => {
    const from = before[name] ?? null;
    const to = after[name] ?? null;
    if (from === to) return [];
    if (from === null) return [{ name, kind: "added", to: to! }];
    if (to === null) return [{ name, kind: "removed", from }];
    return [{ name, kind: "changed", from, to }];
  });
}

export interface DiffLine {
  sign: " " | "-" | "+";
  text: string;
}

/** Compares line by line. Texts that are too long become one removed and one added block. */
export function linesBetween(before: string, after: string): DiffLine[] {
  const a = before === "" ? [] : before.split("\n");
  const b = after === "" ? [] : after.split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end])
    end += 1;
  const left = a.slice(start, a.length - end);
  const right = b.slice(start, b.length - end);
  const same = (text: string): DiffLine => ({ sign: " ", text });
  return [
    ...a.slice(0, start).map(same),
    ...(left.length * right.length > 1_000_000
      ? [
          ...left.map((text): DiffLine => ({ sign: "-", text })),
          ...right.map((text): DiffLine => ({ sign: "+", text })),
        ]
      : middle(left, right)),
    ...a.slice(a.length - end).map(same),
  ];
}

/** Longest common subsequence by the usual table. */
function middle(a: string[], b: string[]): DiffLine[] {
  const width = b.length + 1;
  const table = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      table[i * width + j] =
        a[i] === b[j]
          ? table[(i + 1) * width + j + 1]! + 1
          : Math.max(table[(i + 1) * width + j]!, table[i * width + j + 1]!);
    }
  }
  const lines: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ sign: " ", text: a[i]! });
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && table[(i + 1) * width + j]! >= table[i * width + j + 1]!)) {
      lines.push({ sign: "-", text: a[i]! });
      i += 1;
    } else {
      lines.push({ sign: "+", text: b[j]! });
      j += 1;
    }
  }
  return lines;
}

/** Only the changed lines and `around` lines before and after each; a skipped stretch is one line of dots. */
export function nearChanges(lines: readonly DiffLine[], around = 2): DiffLine[] {
  const near = lines.map((_, index) =>
    lines.slice(Math.max(0, index - around), index + around + 1).some((line) => line.sign !== " "),
  );
  return lines.flatMap((line, index): DiffLine[] => {
    if (near[index]) return [line];
    return index === 0 || near[index - 1] ? [{ sign: " ", text: "…" }] : [];
  });
}
