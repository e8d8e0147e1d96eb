/** The server's metrics in small charts, polled while the view is open. */

import { useEffect, useState } from "preact/hooks";
import { describe, getText } from "../api/client.ts";
import { type Bucket, type Family, histogram, parseMetrics, quantile, total } from "../lib/metrics.ts";
import { bytes, duration, plural } from "../lib/time.ts";

const POLL_INTERVAL_MS = 3000;
/** Points of a chart: ten minutes. */
const MAX_POINTS = 200;
/** A chart with fewer points is filled up with its first value. */
const MIN_POINTS = 20;

interface Reading {
  at: number;
  families: Map<string, Family>;
}

/** The charts, each of the first metric family whose name matches. */
const CHARTS: { title: string; names: RegExp; rate?: true; unit?: "bytes" | "count" }[] = [
  { title: "Terminals live", names: /terminals_live/ },
  { title: "Viewers", names: /watchers/ },
  { title: "Sessions opened", names: /sessions_opened/ },
  { title: "Sessions closed", names: /sessions_closed/ },
  { title: "Output per second", names: /bytes_out|output_bytes/, rate: true, unit: "bytes" },
  { title: "Input per second", names: /bytes_in|input_bytes/, rate: true, unit: "bytes" },
  { title: "State versions written", names: /versions_written|state_versions/ },
  { title: "Instances created", names: /instances_created/ },
  { title: "Instances failed", names: /instances_failed/ },
  { title: "Reconnects", names: /reconnects/ },
  { title: "Failed recoveries", names: /recoveries_failed|failed_recoveries/ },
];

export function MetricsView() {
  const [readings, setReadings] = useState<Reading[]>([]);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    let here = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const poll = async (): Promise<void> => {
      try {
        const families = parseMetrics(await getText("/metrics"));
        if (!here) return;
        setReadings((before) =>
          [
            ...before,
            { at: Date.now(), families: new Map(families.map((family) => [family.name, family])) },
          ].slice(-MAX_POINTS),
        );
        setError(null);
      } catch (failure) {
        if (here) setError(describe(failure));
      }
      if (here) timer = setTimeout(() => void poll(), POLL_INTERVAL_MS);
    };
    void poll();
    return () => {
      here = false;
      clearTimeout(timer);
    };
  }, []);
  const latest = readings.at(-1);
  const all = latest ? [...latest.families.values()] : [];
  const charts = CHARTS.flatMap((chart) => {
    const family = all.find((one) => one.kind !== "histogram" && chart.names.test(one.name));
    return family ? [{ ...chart, family }] : [];
  });
  const histograms = all.filter((family) => family.kind === "histogram");
  return (
    <main class="page" id="main" tabIndex={-1}>
      <header class="page-head">
        <h1>Metrics</h1>
        <a class="quiet-text" href="/metrics" target="_blank" rel="noreferrer">
          View as text
        </a>
      </header>
      {error && (
        <p class="failure" role="alert">
          {error}
        </p>
      )}
      <ul class="cards charts">
        {charts.map((chart) => (
          <li key={chart.title} class="card">
            <Line
              title={chart.title}
              help={chart.family.help}
              unit={chart.unit ?? "count"}
              values={valuesOf(readings, chart.family.name, chart.rate === true)}
            />
          </li>
        ))}
        {histograms.map((family) => (
          <li key={family.name} class="card">
            <Bars family={family} />
          </li>
        ))}
      </ul>
      <details class="all-metrics">
        <summary>All metrics</summary>
        <div class="table-box">
          <table class="table">
            <tbody>
              {all
                .filter((family) => family.kind !== "histogram")
                .map((family) => (
                  <tr key={family.name}>
                    <th scope="row">
                      <code>{family.name}</code>
                    </th>
                    <td class="number">{number(total(family))}</td>
                    <td class="quiet-text">{family.help}</td>
                  </tr>
                ))}
            </tbody>
          </table>
        </div>
      </details>
    </main>
  );
}

const number = (value: number): string =>
  Number.isInteger(value) ? value.toLocaleString() : value.toPrecision(4);

function valuesOf(readings: Reading[], name: string, rate: boolean): number[] {
  const values = readings.map((reading) => total(reading.families.get(name)));
  if (!rate) return values;
  return values.slice(1).map((value, index) => {
    const seconds = (readings[index + 1]!.at - readings[index]!.at) / 1000;
    // Counters start at zero when the server restarts.
    return seconds > 0 ? Math.max(0, value - values[index]!) / seconds : 0;
  });
}

const WIDTH = 240;
const HEIGHT = 48;

function Line({
  title,
  help,
  values,
  unit,
}: {
  title: string;
  help: string;
  values: number[];
  unit: "bytes" | "count";
}) {
  const last = values.at(-1) ?? 0;
  const top = Math.max(1, ...values);
  const drawn =
    values.length < MIN_POINTS
      ? [...Array<number>(MIN_POINTS - values.length).fill(values[0] ?? 0), ...values]
      : values;
  const step = WIDTH / (drawn.length - 1);
  const points = drawn.map(
    (value, index) =>
      `${(index * step).toFixed(1)},${(HEIGHT - 2 - (value / top) * (HEIGHT - 6)).toFixed(1)}`,
  );
  const amount = unit === "bytes" ? `${bytes(last)}/s` : number(last);
  return (
    <figure class="chart" title={help}>
      <figcaption>
        <span>{title}</span>
        <strong>{amount}</strong>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}: ${amount}, at most ${unit === "bytes" ? bytes(top) : number(top)}`}
      >
        <polyline class="line" points={points.join(" ")} />
      </svg>
    </figure>
  );
}

/** A histogram. Its title comes from its name: `stead_recovery_seconds` is "recovery time". */
function Bars({ family }: { family: Family }) {
  const { buckets, count, sum } = histogram(family);
  const kind = /seconds$/.test(family.name) ? "seconds" : /bytes$/.test(family.name) ? "bytes" : "count";
  const what = { seconds: "time", bytes: "size", count: "count" }[kind];
  const title = `${family.name
    .replace(/^stead_/, "")
    .replace(/_(seconds|bytes)$/, "")
    .replaceAll("_", " ")
    .replace(/^http /, "HTTP ")} ${what}`;
  const amount = (value: number | null): string => {
    if (value === null) return "–";
    if (value === Infinity) return "more";
    return kind === "seconds" ? duration(value * 1000) : kind === "bytes" ? bytes(value) : number(value);
  };
  const p50 = amount(quantile(buckets, 0.5));
  const p99 = amount(quantile(buckets, 0.99));
  return (
    <figure class="chart" title={family.help}>
      <figcaption>
        <span>{title}</span>
        <strong>{count === 0 ? "No samples" : `mean ${amount(sum / count)}`}</strong>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}: ${plural(count, "sample")}, p50 ${p50}, p99 ${p99}`}
      >
        <BarShapes buckets={buckets} />
      </svg>
      <p class="quiet-text">
        {count === 0 ? " " : `${plural(count, "sample")} · p50 ≤ ${p50} · p99 ≤ ${p99}`}
      </p>
    </figure>
  );
}

function BarShapes({ buckets }: { buckets: Bucket[] }) {
  const top = Math.max(1, ...buckets.map((bucket) => bucket.count));
  const width = WIDTH / Math.max(1, buckets.length);
  return (
    <>
      {buckets.map((bucket, index) => {
        const height = bucket.count === 0 ? 1 : Math.max(3, (bucket.count / top) * (HEIGHT - 4));
        return (
          <rect
            key={bucket.upTo}
            class="bar-shape"
            x={index * width + 1}
            y={HEIGHT - height}
            width={Math.max(1, width - 2)}
            height={height}
          />
        );
      })}
    </>
  );
}
