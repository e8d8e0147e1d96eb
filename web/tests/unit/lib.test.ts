import { describe, expect, test, vi } from "vitest";
import { describe as describeError, fieldErrors, problemOf } from "../../src/api/client.ts";
import { parseEvent } from "../../src/api/events.ts";
import { Refresher } from "../../src/api/resource.ts";
import type { Command, Handoff, Thread } from "../../src/api/types.ts";
import { mostUrgent, pageIcon, pageTitle } from "../../src/lib/activity.ts";
import { plainOf, runsOf } from "../../src/lib/ansi.ts";
import { changesBetween, linesBetween, nearChanges } from "../../src/lib/diff.ts";
import { addedTo, answerText, ofThread, resultOf } from "../../src/lib/handoff.ts";
import { lastLine, promptOf } from "../../src/lib/last-line.ts";
import { histogram, parseMetrics, quantile, total } from "../../src/lib/metrics.ts";
import { find } from "../../src/lib/palette.ts";
import { DEFAULTS, validPreferences } from "../../src/lib/preferences.ts";
import { missingText } from "../../src/lib/provider.ts";
import { eventsBefore, parseRecording, secondOf, shortenPauses } from "../../src/lib/recording.ts";
import { routeOf, threadAddress } from "../../src/lib/router.ts";
import { isSecret, maskLine } from "../../src/lib/secrets.ts";
import { EventParser } from "../../src/lib/sse.ts";
import { groupThreads, situationOf, threadActivity, threadState } from "../../src/lib/thread-state.ts";
import { ago, bytes, duration, relative } from "../../src/lib/time.ts";
import { contentText, latestOf, matches, outcome, timeline, withCurrent } from "../../src/lib/timeline.ts";
import { usageOf } from "../../src/lib/usage.ts";
import { causeText } from "../../src/lib/version.ts";
import { exitText } from "../../src/terminal/exit.ts";
import { webAddress } from "../../src/terminal/links.ts";
import { NOTIFICATIONS } from "../../src/terminal/osc.ts";
import { hasHiddenParts, isGuarded, pasteText } from "../../src/terminal/paste.ts";
import { steadUnicode, width } from "../../src/terminal/unicode.ts";

const command = (more: Partial<Command> = {}): Command => ({
  command_id: "cmd_1",
  terminal_id: "term_1",
  command: "true",
  status: "finished",
  exit_code: 0,
  signal: null,
  stdout_bytes: 0,
  stderr_bytes: 0,
  duration_ms: 1,
  ...more,
});

describe("addresses", () => {
  test("a view is found and names survive it", () => {
    for (const thread of ["t", "a b/ü#?%", "..%2f", "<img src=x>", "日本"]) {
      const address = new URL(threadAddress(thread, "replay", { at: "5" }), "http://x");
      expect(routeOf(address.pathname, address.search)).toMatchObject({
        view: "thread",
        thread,
        tab: "replay",
      });
    }
    expect(routeOf("/")).toEqual({ view: "now" });
    expect(routeOf("/ui/threads", "?filter=a%20b")).toEqual({ view: "threads", filter: "a b" });
    expect(routeOf("/ui/leases")).toEqual({ view: "leases" });
    expect(routeOf("/ui/share")).toEqual({ view: "shared", terminal: null });
    expect(routeOf("/ui/shared/term_1")).toEqual({ view: "shared", terminal: "term_1" });
    expect(routeOf("/ui/threads/t/nothing").view).toBe("not_found");
    expect(routeOf("/ui/threads/%zz").view).toBe("not_found");
    expect(routeOf("/ui/settings/x").view).toBe("not_found");
  });

  test("only web addresses are opened", () => {
    expect(webAddress("https://example.org/a b")).toBe("https://example.org/a%20b");
    for (const bad of [
      "javascript:alert(1)",
      "file:///etc/passwd",
      "data:text/html,x",
      "//host",
      "vbscript:x",
      "",
    ]) {
      expect(webAddress(bad), bad).toBe(null);
    }
  });
});

describe("output as text", () => {
  test("colours become styles, and other sequences are removed", () => {
    expect(runsOf("a\x1b[1;31mb\x1b[0mc")).toEqual([
      { text: "a", style: {} },
      { text: "b", style: { bold: true, fg: "palette:1" } },
      { text: "c", style: {} },
    ]);
    expect(runsOf("\x1b[38;5;196mx\x1b[48;2;1;2;3my")).toEqual([
      { text: "x", style: { fg: "rgb(255,0,0)" } },
      { text: "y", style: { fg: "rgb(255,0,0)", bg: "rgb(1,2,3)" } },
    ]);
    expect(runsOf("\x1b[38:2::9:8:7mx")[0]?.style).toEqual({ fg: "rgb(9,8,7)" });
    expect(runsOf("\x1b[38;5;999mx")[0]?.style).toEqual({});
    expect(plainOf("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b[2J\x1b(Bc\x00\x07")).toBe("abc");
    expect(plainOf("\x1b]0;never ended")).toBe("");
  });

  test("a carriage return overwrites, a line end does not", () => {
    expect(plainOf("10%\r20%\r\ndone\n")).toBe("20%\ndone\n");
    expect(plainOf("a\r\nb")).toBe("a\nb");
  });

  test("markup stays text", () => {
    expect(plainOf("<script>alert(1)</script>")).toBe("<script>alert(1)</script>");
  });
});

describe("pasting", () => {
  test("of control characters, only tabs and line ends are typed", () => {
    expect(pasteText("a\x1b[201~\x03b\tc\n")).toEqual({ clean: "a[201~b\tc\n", lines: 1 });
    expect(pasteText("a\r\nb")).toEqual({ clean: "a\r\nb", lines: 2 });
    expect(pasteText("")).toEqual({ clean: "", lines: 0 });
    expect(hasHiddenParts("a\u202eb")).toBe(true);
    expect(hasHiddenParts("a\tb\n")).toBe(false);
  });

  test("several lines are confirmed as the person prefers", () => {
    const confirmed = (lines: number, bracketed: boolean): boolean[] =>
      (["always", "risky", "never"] as const).map((guard) => isGuarded(guard, lines, bracketed));
    expect(confirmed(1, false)).toEqual([false, false, false]);
    expect(confirmed(2, false)).toEqual([true, true, false]);
    expect(confirmed(2, true)).toEqual([true, false, false]);
  });
});

test("the end of a program is explained", () => {
  expect(exitText({ code: 5, signal: null })).toBe("The program ended with exit code 5.");
  expect(exitText({ code: 0, signal: null })).toBe("The program ended normally (exit code 0).");
  expect(exitText({ code: null, signal: "KILL" })).toBe("The program was ended by signal KILL.");
  expect(exitText({ code: null, signal: null })).toBe("The program ended; its exit code is unknown.");
});

test("widths come from the server's table", () => {
  const check = (text: string, expected: number): void =>
    expect(width(text.codePointAt(0)!), text).toBe(expected);
  check("a", 1);
  check("\n", 0);
  check("é", 1);
  check("\u0301", 0);
  check("日", 2);
  check("😀", 2);
  check("\u200d", 0);
  const letter = steadUnicode.charProperties(0x65, 0);
  expect(steadUnicode.charProperties(0x301, letter)).toBe((1 << 1) | 1);
  expect(steadUnicode.charProperties(0x301, 0)).toBe(0);
});

test("times and amounts are short", () => {
  expect([3, 1234, 12_345, 65_000, 7_380_000, 200_000_000].map(duration)).toEqual([
    "3 ms",
    "1.2 s",
    "12 s",
    "1 min 5 s",
    "2 h 3 min",
    "2 d 7 h",
  ]);
  expect(relative(1000, 1500)).toBe("now");
  expect(relative("1970-01-01T00:00:00Z", 90_000)).toBe("1 min ago");
  expect(relative(90_000, 0)).toBe("in 1 min");
  expect(relative("x", 0)).toBe("unknown");
  expect(ago("1970-01-01T00:00:03Z", 0)).toBe("now");
  expect(ago("1970-01-01T00:00:03Z", 63_000)).toBe("1 min ago");
  expect(ago(null, 0)).toBe("never");
  expect([512, 1536, 20 << 20].map(bytes)).toEqual(["512 B", "1.5 KiB", "20 MiB"]);
});

test("secrets are known by name and by shape", () => {
  const check = (name: string, value: string, expected: boolean): void =>
    expect(isSecret(name, value), `${name}=${value}`).toBe(expected);
  check("AWS_SECRET_ACCESS_KEY", "x", true);
  check("GITHUB_TOKEN", "x", true);
  check("DB_PASSWORD", "x", true);
  check("DATABASE_URL", "postgres://me:pass@host/db", true);
  check("DATABASE_URL", "postgres://host/db", false);
  check("X", "ghp_abcdefghijkl", true);
  check("PATH", "/bin:/usr/bin", false);
  check("KEYBOARD", "de", false);
  expect(maskLine('declare -x API_TOKEN="abc"')).toBe("declare -x API_TOKEN=••••••••");
  expect(maskLine("export DB='postgres://a:b@c/d'")).toBe("export DB=••••••••");
  expect(maskLine('declare -- EDITOR="vim"')).toBe('declare -- EDITOR="vim"');
});

describe("metrics", () => {
  const text = [
    "# HELP stead_sessions_opened Sessions opened.",
    "# TYPE stead_sessions_opened counter",
    'stead_sessions_opened_total{why="a\\"b\\n"} 3',
    'stead_sessions_opened_total{why="c"} 4',
    "# TYPE stead_recovery_seconds histogram",
    'stead_recovery_seconds_bucket{le="0.1"} 2',
    'stead_recovery_seconds_bucket{le="1"} 5',
    'stead_recovery_seconds_bucket{le="+Inf"} 6',
    "stead_recovery_seconds_sum 9.5",
    "stead_recovery_seconds_count 6",
    "plain 1e3",
    "# EOF",
  ].join("\n");

  test("families hold their samples", () => {
    const families = parseMetrics(text);
    expect(families.map((family) => [family.name, family.kind, family.samples.length])).toEqual([
      ["stead_sessions_opened", "counter", 2],
      ["stead_recovery_seconds", "histogram", 5],
      ["plain", "untyped", 1],
    ]);
    expect(total(families[0])).toBe(7);
    expect(families[0]?.samples[0]?.labels).toEqual({ why: 'a"b\n' });
    expect(total(families[2])).toBe(1000);
  });

  test("each bucket of a histogram is counted by itself", () => {
    const read = histogram(parseMetrics(text)[1]!);
    expect(read).toEqual({
      buckets: [
        { upTo: 0.1, count: 2 },
        { upTo: 1, count: 3 },
        { upTo: Infinity, count: 1 },
      ],
      count: 6,
      sum: 9.5,
    });
    expect(quantile(read.buckets, 0.5)).toBe(1);
    expect(quantile([], 0.5)).toBe(null);
  });
});

describe("differences", () => {
  test("of variables", () => {
    expect(changesBetween({ a: "1", b: "2", c: null }, { b: "3", c: "4" })).toEqual([
      { name: "a", kind: "removed", from: "1" },
      { name: "b", kind: "changed", from: "2", to: "3" },
      { name: "c", kind: "added", to: "4" },
    ]);
  });

  test("of lines", () => {
    const check = (before: string, after: string, expected: string): void =>
      expect(
        linesBetween(before, after)
          .map((line) => line.sign + line.text)
          .join("|"),
      ).toBe(expected);
    check("a\nb\nc", "a\nx\nc", " a|-b|+x| c");
    check("", "a", "+a");
    check("a\nb", "", "-a|-b");
    check("1\n2\n3\n4", "2\n4\n5", "-1| 2|-3| 4|+5");
    const long = linesBetween("1\n2\n3\n4\n5\n6\n7\n8", "1\n2\n3\n4\nx\n6\n7\n8");
    expect(nearChanges(long, 1).map((line) => line.sign + line.text)).toEqual([
      " …",
      " 4",
      "-5",
      "+x",
      " 6",
      " …",
    ]);
  });
});

describe("the timeline", () => {
  const sent = { role: "user", content: "please", at: "2026-01-01T00:00:02Z" };

  test("is in chronological order", () => {
    const first = command({ command_id: "a", created_at: "2026-01-01T00:00:01Z" });
    const last = command({ command_id: "b", created_at: "2026-01-01T00:00:03Z" });
    expect(timeline([sent], [last, first]).map((entry) => entry.key)).toEqual(["a", "m0", "b"]);
  });

  test("says how a command ended", () => {
    const check = (more: Partial<Command>, text: string, tone: string): void =>
      expect(outcome(command(more))).toEqual({ text, tone });
    check({}, "exit 0", "good");
    check({ exit_code: 2 }, "exit 2", "bad");
    check({ exit_code: null, timed_out: true }, "timed out", "bad");
    check({ exit_code: null, signal: 9 }, "signal 9", "bad");
    check({ status: "running", exit_code: null }, "running", "busy");
    check({ status: "running", exit_code: null, waiting_for_input: true }, "waiting for input", "busy");
    check({ status: "lost", exit_code: null }, "lost", "warn");
  });

  test("is searched and filtered", () => {
    const [message] = timeline([sent], []);
    const [failed] = timeline([], [command({ exit_code: 1, command: "make Test" })]);
    expect(matches(message!, { text: "PLEASE", only: "all" })).toBe(true);
    expect(matches(message!, { text: "", only: "failed" })).toBe(false);
    expect(matches(failed!, { text: "test", only: "failed" })).toBe(true);
    expect(matches(failed!, { text: "absent", only: "all" })).toBe(false);
  });

  test("shows a message of any shape", () => {
    expect(contentText([{ type: "text", text: "a" }, "b"])).toBe("a\nb");
    expect(contentText({ x: 1 })).toBe('{\n  "x": 1\n}');
  });
});

describe("a recording", () => {
  const cast = [
    '{"version":2,"width":80,"height":24,"timestamp":1000}',
    '[0.5,"o","a"]',
    '[2,"r","100x30"]',
    '[100,"o","b"]',
    '[101,"i","typed"]',
    '[102,"o","cut',
  ].join("\n");

  test("is read up to the first invalid byte", () => {
    const read = parseRecording(cast);
    expect(read).toMatchObject({ cols: 80, rows: 24, began: 1_000_000, length: 100 });
    expect(read.events).toEqual([
      { at: 0.5, output: "a", end: null },
      { at: 2, cols: 100, rows: 30 },
      { at: 100, output: "b", end: null },
    ]);
    expect([0, 0.5, 3, 500].map((time) => eventsBefore(read.events, time))).toEqual([0, 1, 2, 3]);
    expect(secondOf(read, "1970-01-01T00:16:42Z")).toBe(2);
    expect(secondOf(read, 0)).toBe(0);
    expect(parseRecording('{"version":2,"timestamp":1000,"stead":{"began_ms":1000250}}').began).toBe(
      1_000_250,
    );
  });

  test("plays without idle time", () => {
    expect(shortenPauses(parseRecording(cast).events, 1)).toEqual({ times: [0.5, 1.5, 2.5], length: 2.5 });
  });
});

test("the palette finds by parts of words, best first", () => {
  const actions = ["Go to metrics", "New thread", "Thread: build", "Settings"].map((title) => ({
    title,
    run() {},
  }));
  const titles = (typed: string): string[] => find(typed, actions).map((action) => action.title);
  expect(titles("thread")).toEqual(["Thread: build", "New thread"]);
  expect(titles("nth")).toEqual(["New thread"]);
  expect(titles("zzz")).toEqual([]);
  expect(titles("").length).toBe(4);
});

describe("the activity of a thread", () => {
  const thread = (status: string, last: [string, number | null] | null): Thread => ({
    thread_id: "t",
    project_id: null,
    sandbox: { type: "local", status },
    last_command: last && {
      command_id: "cmd_1",
      terminal_id: "term_1",
      command: "make",
      status: last[0],
      exit_code: last[1],
      running: last[0] === "queued" || last[0] === "running",
      started_at: null,
      finished_at: null,
      waiting_for_input: false,
    },
    created_at: "",
    updated_at: "",
  });
  const check = (status: string, last: [string, number | null] | null, expected: string): void =>
    expect(threadState(thread(status, last)).text, `${status} ${last}`).toBe(expected);

  test("follows from its last command and its instance", () => {
    check("running", ["queued", null], "running");
    check("running", ["running", null], "running");
    check("running", ["finished", 0], "idle");
    check("running", ["finished", 2], "failed");
    check("running", null, "idle");
    check("paused", ["running", null], "paused");
    check("none", null, "not started");
    check("starting", null, "starting");
  });

  test("decides its group", () => {
    const none = new Set<string>();
    const running = thread("running", ["running", null]);
    const waiting = { ...running, last_command: { ...running.last_command!, waiting_for_input: true } };
    expect([waiting, running, thread("paused", ["running", null])].map(threadActivity)).toEqual([
      "waiting",
      "running",
      "idle",
    ]);
    expect(situationOf(waiting, none, none)).toBe("waiting");
    expect(situationOf(running, none, none)).toBe("running");
    expect(situationOf(thread("paused", ["running", null]), none, none)).toBe("paused");
    expect(situationOf(thread("dead", ["running", null]), none, none)).toBe("failed");
    expect(situationOf(thread("running", ["timed_out", null]), none, none)).toBe("failed");
    expect(situationOf(thread("none", ["finished", 1]), new Set(["t"]), none)).toBe("suspended");
    expect(situationOf(thread("running", null), none, new Set(["t"]))).toBe("waiting");
    expect(situationOf(running, none, new Set(["t"]))).toBe("running");
    expect(situationOf(thread("none", null), none, none)).toBe("idle");
  });

  test("orders the running by their start and the others by their last use", () => {
    const at = (id: string, status: string, minute: number): Thread => {
      const made = thread("running", [status, 0]);
      const time = `2026-01-01T00:0${minute}:00Z`;
      const last = { ...made.last_command!, started_at: time };
      return { ...made, thread_id: id, last_command: last, updated_at: time };
    };
    const groups = groupThreads(
      [at("c", "running", 3), at("a", "running", 1), at("x", "finished", 1), at("y", "finished", 2)],
      new Set(),
      new Set(),
    );
    expect(groups.running.map((one) => one.thread_id)).toEqual(["a", "c"]);
    expect(groups.idle.map((one) => one.thread_id)).toEqual(["y", "x"]);
    expect(groups.failed).toEqual([]);
  });

  test("includes the usage of its limits", () => {
    const limits = { memory_bytes: 1 << 30, milli_cpus: 500, processes: 100, disk_bytes: 1 << 30 };
    const metrics = { cpu_us: 61_500_000, memory_bytes: 1 << 29, processes: 95, disk_bytes: 2 ** 31, limits };
    expect(usageOf(metrics, 20)).toEqual([
      { name: "CPU", text: "20 % of 50 %", part: 0.4 },
      { name: "Memory", text: "512 MiB of 1 GiB", part: 0.5 },
      { name: "Disk", text: "2 GiB of 1 GiB", part: 1 },
      { name: "Processes", text: "95 of 100", part: 0.95 },
    ]);
    expect(usageOf({ ...metrics, limits: null, processes: null }, null)).toEqual([
      { name: "CPU", text: "1 min 1 s of time", part: null },
      { name: "Memory", text: "512 MiB", part: null },
    ]);
  });

  test("is summarized by the last non-blank line of its screen", () => {
    expect(lastLine("one\n  two  \n\n   \n")).toBe("two");
    expect(lastLine("")).toBe("");
  });

  test("has its question in the unfinished line of its output", () => {
    expect(promptOf({ stdout: "one\ntwo\n", stderr: "\x1b[1mWhich branch? \x1b[0m" })).toBe("Which branch?");
    expect(promptOf({ stdout: "Continue? ", stderr: "warning\n" })).toBe("Continue?");
    expect(promptOf({ stdout: "done\n" })).toBe("");
    expect(promptOf({ stdout: "cut", truncated: true })).toBe("");
  });

  test("is that of its most urgent terminal", () => {
    expect(mostUrgent(["idle", "failed", "running"])).toBe("running");
    expect(mostUrgent(["running", "waiting"])).toBe("waiting");
    expect(mostUrgent([])).toBe("idle");
  });

  test("is in the title and the icon of the page, with that of the whole server", () => {
    const none = { needs: 0, running: 0 };
    expect(pageTitle("build", "waiting", none)).toBe("⌨ build · Stead");
    expect(pageTitle("build", "idle", { needs: 2, running: 1 })).toBe("(2) build · Stead");
    expect(pageTitle(null, "idle", none)).toBe("Stead");
    expect(pageTitle(null, "idle", { needs: 1, running: 3 })).toBe("(1) Stead · 3 running");
    expect(pageIcon("build", "idle", { needs: 0, running: 1 })).toBe("/icon.svg");
    expect(pageIcon("build", "failed", none)).toBe("/icon-failed.svg");
    expect(pageIcon("build", "running", { needs: 1, running: 1 })).toBe("/icon-waiting.svg");
    expect(pageIcon(null, "idle", { needs: 0, running: 1 })).toBe("/icon-running.svg");
  });

  test("includes the running command, even if the list does not contain it", () => {
    const last = thread("running", ["running", null]).last_command!;
    const current = { ...last, started_at: "2026-01-01T00:00:05Z", waiting_for_input: true };
    const before = command({ command_id: "cmd_0" });
    expect(withCurrent([before], [current])).toMatchObject([
      { command_id: "cmd_1", terminal_id: "term_1", status: "running", waiting_for_input: true },
      { command_id: "cmd_0" },
    ]);
    const queued = command({ command_id: "cmd_1", status: "queued", source: "agent" });
    const other = { ...current, command_id: "cmd_2", terminal_id: "term_2" };
    expect(withCurrent([queued], [current, other])).toMatchObject([
      { command_id: "cmd_2", terminal_id: "term_2", status: "running" },
      { command_id: "cmd_1", status: "running", source: "agent", started_at: "2026-01-01T00:00:05Z" },
    ]);
    expect(withCurrent([before], [])).toEqual([before]);
  });

  test("is the running command, or else the first queued one, or else the one that ended last", () => {
    const at = (id: string, status: string, second: number): Command =>
      command({ command_id: id, status, created_at: `2026-01-01T00:00:0${second}Z` });
    const latest = (...all: Command[]): string | undefined => latestOf(all)?.command_id;
    expect(latest(at("a", "queued", 3), at("b", "running", 1), at("c", "finished", 0))).toBe("b");
    expect(latest(at("a", "queued", 3), at("b", "queued", 2), at("c", "finished", 0))).toBe("b");
    expect(latest(at("a", "finished", 1), at("b", "finished", 2))).toBe("b");
    expect(latest()).toBe(undefined);
  });
});

describe("a hand-off", () => {
  const handoff = (more: Partial<Handoff> = {}): Handoff => ({
    handoff_id: "handoff_1",
    thread_id: "t",
    terminal_id: "term_1",
    kind: "approval",
    reason: "Deploy?",
    options: [],
    status: "open",
    created_at: "2026-01-01T00:00:00Z",
    expires_at: "2026-01-02T00:00:00Z",
    settled_at: null,
    ...more,
  });

  test("ends with a description of its outcome", () => {
    const words = (more: Partial<Handoff>): string => {
      const one = handoff(more);
      return `${resultOf(one).text} ${answerText(one)}`.trim();
    };
    expect(words({})).toBe("open");
    expect(words({ status: "answered", answer: { approve: true, option: "blue", text: "go" } })).toBe(
      "approved blue · go",
    );
    expect(words({ status: "answered", answer: { approve: false } })).toBe("not approved");
    expect(words({ kind: "secret", status: "answered", answer: null })).toBe("answered");
    expect(words({ status: "expired" })).toBe("expired");
  });

  test("is announced only once, for its own thread", () => {
    const [first, second] = [handoff(), handoff({ handoff_id: "handoff_2", thread_id: "u" })];
    expect(addedTo([first], [first, second])).toEqual([second]);
    expect(addedTo([first], [])).toEqual([]);
    expect(ofThread([first, second], "u")).toEqual([second]);
  });
});

describe("errors", () => {
  const invalid = problemOf(400, {
    code: "invalid_body",
    detail: "/cwd: must be an absolute path",
    errors: [
      { pointer: "/cwd", detail: "must be an absolute path" },
      { pointer: "/sandbox", detail: "provider local has no settings" },
      "nonsense",
    ],
  });

  test("are sentences without JSON pointers", () => {
    expect(describeError(invalid)).toBe(
      "Cwd: must be an absolute path. Sandbox: provider local has no settings.",
    );
    expect(describeError(problemOf(409, { detail: "the thread is paused" }))).toBe("The thread is paused.");
    expect(describeError(problemOf(502, {}))).toBe("The server answered 502.");
    expect(describeError(new TypeError("failed to fetch"))).toMatch(/^The server cannot be reached/);
  });

  test("are shown at their fields", () => {
    expect(fieldErrors(invalid, ["thread", "cwd"])).toEqual({
      byField: { cwd: "Must be an absolute path." },
      rest: ["Provider local has no settings."],
    });
    expect(fieldErrors(new TypeError("x"), ["cwd"])).toEqual({ byField: {}, rest: [] });
  });
});

test("a version names the command that caused it", () => {
  const commands = [
    command({ command_id: "cmd_3", command: "true", version: 7, created_at: "2026-01-01T00:00:03Z" }),
    command({ command_id: "cmd_2", command: "cd /tmp", version: 7, created_at: "2026-01-01T00:00:02Z" }),
    command({ command_id: "cmd_1", command: "make test", version: 6, created_at: "2026-01-01T00:00:01Z" }),
  ];
  const check = (cause: unknown, expected: string, version = 9): void =>
    expect(causeText({ version, at: "", cwd: "/", cause }, commands)).toBe(expected);
  check({ kind: "exec", command_id: "cmd_1" }, "make test");
  check({ kind: "typed" }, "cd /tmp", 7);
  check({ kind: "typed" }, "typed command");
  check({ kind: "rollback", to: 3 }, "rollback to version 3");
  check({ kind: "created" }, "created");
  check(null, "");
});

test("notifications of programs are read from three kinds of sequences", () => {
  const check = (code: number, data: string, expected: string | null): void =>
    expect(new Map(NOTIFICATIONS).get(code)!(data), data).toBe(expected);
  check(9, "Build \x1b done\n", "Build done");
  check(9, "4;1;50", null);
  check(9, "", null);
  check(777, "notify;Build;12 passed; 1 failed", "Build: 12 passed; 1 failed");
  check(777, "preexec", null);
  check(99, ";Hello", "Hello");
  check(99, "i=1:p=body;Hello", "Hello");
  check(99, "i=1:d=0;part", null);
  check(99, "i=1:p=icon;abc", null);
});

test("a provider that cannot be used says what to install or configure", () => {
  expect(missingText("key: set e2b.key or E2B_API_KEY")).toBe("Not configured. Set e2b.key or E2B_API_KEY.");
  expect(missingText("engine: none answers (unix:///var/run/docker.sock); install docker.io")).toBe(
    "No container engine found. Install Docker or Podman, or set docker.host.",
  );
  expect(missingText("user namespaces")).toBe("Missing user namespaces.");
});

test("invalid stored preferences are ignored or corrected", () => {
  expect(validPreferences(null)).toEqual(DEFAULTS);
  expect(
    validPreferences({ theme: "neon", fontSize: 900, scrollback: "x", screenReader: "yes", panel: false }),
  ).toEqual({
    ...DEFAULTS,
    fontSize: 32,
    panel: false,
  });
  expect(
    validPreferences({
      density: "dense",
      terminalTheme: "contrast",
      fontFamily: ' "Fira Code"; x{} ',
      pasteGuard: "never",
      copyOnSelect: true,
      skipIdle: false,
      notify: { handoffs: false, programs: "no" },
    }),
  ).toEqual({
    ...DEFAULTS,
    density: "dense",
    terminalTheme: "contrast",
    fontFamily: "Fira Code x",
    pasteGuard: "never",
    copyOnSelect: true,
    skipIdle: false,
    notify: { ...DEFAULTS.notify, handoffs: false },
  });
});

test("an event names its resources", () => {
  expect(parseEvent("session", '{"thread_id":"t","session_id":"s"}')).toMatchObject({
    name: "session",
    thread: "t",
  });
  expect(parseEvent("lease", "not json")).toMatchObject({ name: "lease", lease: null });
});

test("any number of triggers leads to one more request, after a pause", async () => {
  let asked = 0;
  let answer: (value: number) => void = () => {};
  let rested: () => void = () => {};
  const got: unknown[] = [];
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  const latest = new Refresher<number>(
    () => {
      asked += 1;
      return new Promise((resolve) => {
        answer = resolve;
      });
    },
    (value, error) => got.push(error ?? value),
    () =>
      new Promise((resolve) => {
        rested = resolve;
      }),
  );
  latest.refresh();
  latest.refresh();
  latest.refresh();
  expect(asked).toBe(1);
  answer(1);
  await turn();
  expect([asked, got]).toEqual([1, [1]]);
  rested();
  await turn();
  expect(asked).toBe(2);
  latest.stop();
  answer(2);
  await turn();
  expect(got).toEqual([1]);
});

test("a request is repeated only after a temporary failure", async () => {
  vi.useFakeTimers();
  const failures: unknown[] = [new TypeError("connection lost"), problemOf(503, {}), problemOf(404, {})];
  const got: unknown[] = [];
  const refresher = new Refresher<string>(
    () => {
      const failure = failures.shift();
      return failure ? Promise.reject(failure) : Promise.resolve("answer");
    },
    (value, error) => got.push(error instanceof Error ? error.message : value),
    () => Promise.resolve(),
  );
  refresher.refresh();
  await vi.runAllTimersAsync();
  expect(got).toEqual(["connection lost", "the server answered 503", "the server answered 404"]);
  refresher.refresh();
  await vi.runAllTimersAsync();
  expect(got.at(-1)).toBe("answer");
  vi.useRealTimers();
});

test("events are read from chunks of any size", () => {
  const text = ': hello\n\nid: 7\nevent: session_opened\ndata: {"a":\ndata: 1}\n\ndata: x\r\n\r\n';
  for (let cut = 0; cut <= text.length; cut += 1) {
    const events = new EventParser();
    expect([...events.feed(text.slice(0, cut)), ...events.feed(text.slice(cut))], `cut at ${cut}`).toEqual([
      { name: "session_opened", data: '{"a":\n1}', id: "7" },
      { name: "message", data: "x", id: null },
    ]);
  }
});
