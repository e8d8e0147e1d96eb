/** Parses the text format of Prometheus. */

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** A metric family with its samples. */
export interface Family {
  name: string;
  kind: string;
  help: string;
  samples: Sample[];
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

function number(text: string): number {
  if (text === "+Inf") return Infinity;
  if (text === "-Inf") return -Infinity;
  return Number(text);
}

/** The families of an exposition, in its order. Samples of a histogram belong to its family. */
export function parseMetrics(text: string): Family[] {
  const families = new Map<string, Family>();
  const family = (name: string): Family => {
    const found = families.get(name) ?? { name, kind: "untyped", help: "", samples: [] };
    families.set(name, found);
    return found;
  };
  for (const line of text.split("\n")) {
    const comment = /^# (HELP|TYPE) (\S+) ?(.*)$/.exec(line);
    if (comment) {
      const [, what, name, rest] = comment;
      family(name!)[what === "HELP" ? "help" : "kind"] = rest ?? "";
      continue;
    }
    const found = line.startsWith("#") ? null : LINE.exec(line);
    if (!found) continue;
    const [, name, inside, value] = found;
    const labels: Record<string, string> = {};
    for (const [, key, escaped] of (inside ?? "").matchAll(LABEL)) {
      labels[key!] = escaped!.replace(/\\(.)/g, (_, char: string) => (char === "n" ? "\n" : char));
    }
    const base = ["_bucket", "_sum", "_count", "_total", "_created"].reduce(
      (short, end) =>
        families.has(short) ? short : name!.endsWith(end) ? name!.slice(0, -end.length) : short,
      name!,
    );
    family(families.has(base) ? base : name!).samples.push({ name: name!, labels, value: number(value!) });
  }
  return [...families.values()];
}

/** The sum of a family's plain samples: a counter or gauge over all its labels. */
export const total = (family: Family | undefined): number =>
  family?.samples
    .filter((sample) => !/_(bucket|sum|count|created)$/.test(sample.name) || family.kind !== "histogram")
    .reduce((sum, sample) => sum + sample.value, 0) ?? 0;

export interface Bucket {
  upTo: number;
  /** Observations in this bucket alone. */
  count: number;
}

/** A histogram over all its labels, with counts per bucket rather than running. */
export function histogram(family: Family): { buckets: Bucket[]; count: number; sum: number } {
  const running = new Map<number, number>();
  let count = 0;
  let sum = 0;
  for (const sample of family.samples) {
    if (sample.name.endsWith("_bucket")) {
      const upTo = number(sample.labels.le ?? "+Inf");
      running.set(upTo, (running.get(upTo) ?? 0) + sample.value);
    } else if (sample.name.endsWith("_count")) count += sample.value;
    else if (sample.name.endsWith("_sum")) sum += sample.value;
  }
  let before = 0;
  const buckets = [...running.entries()]
    .sort(([a], [b]) => a - b)
    .map(([upTo, upToHere]) => {
      const own = upToHere - before;
      before = upToHere;
      return { upTo, count: own };
    });
  return { buckets, count, sum };
}

/** The value below which `share` of the observations lie: the upper edge of its bucket. */
export function quantile(buckets: Bucket[], share: number): number | null {
  const all = buckets.reduce((sum, bucket) => sum + bucket.count, 0);
  if (all === 0) return null;
  let seen = 0;
  for (const bucket of buckets) {
    seen += bucket.count;
    if (seen >= all * share) return bucket.upTo;
  }
  return null;
}
