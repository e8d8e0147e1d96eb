// Compares our screens with xterm.js, on recordings and on generated streams.
//
//   agreement   both read the same bytes: are the screen and all modes equal?
//   whole       xterm.js reads our snapshot instead of the bytes: is its state equal?
//   cut         xterm.js reads a snapshot from the middle, then the remaining bytes
//
// usage: node run.mjs [--streams N] [--seed N] [--verbose] [--program PATH]
//
// PATH is the example `serve` of this crate, which is built by default.
// Exits with 1 if a result is below its threshold.

import { spawnSync } from 'node:child_process';
import { Screens, differences, recordings, state, terminal, write } from './lib.mjs';
import { random, stream } from './generate.mjs';

const THRESHOLDS = { agreement: 98, whole: 97, cut: 97 };

const argument = (name) => {
  const at = process.argv.indexOf(name);
  return at < 0 ? undefined : process.argv[at + 1];
};
const option = (name, fallback) => Number(argument(name) ?? fallback);
const verbose = process.argv.includes('--verbose');
const seed = option('--seed', 1);

function build() {
  const cargo = ['build', '--release', '-p', 'vt', '--example', 'serve', '--message-format=json'];
  const { status, stdout } = spawnSync('cargo', cargo, { stdio: ['ignore', 'pipe', 'inherit'], maxBuffer: 1 << 28 });
  if (status !== 0) throw new Error('cargo cannot build the screens');
  const messages = stdout.toString().split('\n').filter(Boolean).map((line) => JSON.parse(line));
  return messages.find(({ executable, target }) => executable && target.name === 'serve').executable;
}

function* generated(count) {
  for (let i = 0; i < count; i++) {
    const { pick } = random(seed * 7919 + i);
    const [cols, rows] = pick([[80, 24], [80, 24], [40, 10], [132, 43], [20, 5], [11, 3]]);
    yield { name: `stream ${seed}/${i}`, bytes: stream(seed * 104729 + i, cols, rows), cols, rows };
  }
}

// The state of xterm.js in the format of `ourSummary`.
function summary(term) {
  const buffer = term.buffer.active;
  const lines = [];
  for (let y = 0; y < buffer.length; y++) {
    const row = buffer.getLine(y);
    lines.push([row.translateToString(true).replace(/ +$/, ''), row.isWrapped]);
  }
  const { modes } = term;
  const hidden = term._core.coreService.isCursorHidden;
  return {
    cursor: [Math.min(buffer.cursorX, term.cols - 1), buffer.cursorY, !hidden].join(),
    'alternate screen': String(buffer.type === 'alternate'),
    title: term._core._inputHandler._windowTitle,
    modes: [modes.applicationCursorKeysMode, modes.applicationKeypadMode, modes.bracketedPasteMode,
      modes.insertMode, modes.originMode, modes.reverseWraparoundMode, modes.sendFocusMode,
      modes.wraparoundMode, modes.mouseTrackingMode].join(),
    lines: lines.map(([text, wrapped]) => `${wrapped ? '+' : ' '}${text}`),
  };
}

function ourSummary({ json }) {
  const { modes } = json;
  return {
    cursor: [json.cursor.col, json.cursor.row, json.cursor.visible].join(),
    'alternate screen': String(json.alt_screen),
    title: json.title,
    modes: [modes.application_cursor, modes.application_keypad, modes.bracketed_paste, modes.insert,
      modes.origin, modes.reverse_wrap, modes.send_focus, modes.wrap, modes.mouse].join(),
    lines: json.lines.map(({ text, wrapped }) => `${wrapped ? '+' : ' '}${text}`),
  };
}

async function check(screens, { name, bytes, cols, rows }, counts) {
  const { below } = random(seed + bytes.length * 31 + name.length);
  const reference = terminal(cols, rows);
  if (!write(reference, bytes)) return;
  const expected = state(reference);
  const note = (kind, found) => {
    counts[kind][found.length ? 1 : 0]++;
    if (found.length && verbose) console.log(`${kind} ${name} (${cols}x${rows}): ${found.slice(0, 3).join('; ')}`);
  };

  const whole = await screens.ask(bytes, { cols, rows });
  note('agreement', differences(summary(reference), ourSummary(whole)));
  const restored = terminal(cols, rows);
  let replies = '';
  restored.onData((data) => (replies += data));
  write(restored, whole.snapshot);
  const found = differences(expected, state(restored));
  if (replies) found.push(`the snapshot contains a query; its reply is ${JSON.stringify(replies)}`);
  note('whole', found);

  const cut = below(bytes.length + 1);
  const half = await screens.ask(bytes, { cols, rows, cut });
  const continued = terminal(cols, rows);
  write(continued, half.snapshot);
  write(continued, bytes.subarray(cut));
  note('cut', differences(expected, state(continued)));
  for (const term of [reference, restored, continued]) term.dispose();
}

const screens = new Screens(argument('--program') ?? build());
let failed = false;
for (const [label, inputs] of [
  ['recordings', recordings()],
  ['generated', [...generated(option('--streams', 300))]],
]) {
  if (!inputs.length) continue;
  const counts = { agreement: [0, 0], whole: [0, 0], cut: [0, 0] };
  for (const input of inputs) await check(screens, input, counts);
  for (const [kind, [same, other]] of Object.entries(counts)) {
    const percent = (100 * same) / (same + other);
    const low = percent < THRESHOLDS[kind];
    failed ||= low;
    console.log(`${label} ${kind.padEnd(10)} ${same}/${same + other} ${percent.toFixed(1)} %${low ? ` below ${THRESHOLDS[kind]} %` : ''}`);
  }
}
screens.close();
process.exitCode = failed ? 1 : 0;
