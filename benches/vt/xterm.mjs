// The same inputs through @xterm/headless, and its own serialiser.
//
// usage: node xterm.mjs DIRECTORY

import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';

const require = createRequire(new URL('../../crates/vt/tests/xterm/package.json', import.meta.url));
const { Terminal } = require('@xterm/headless');
const { SerializeAddon } = require('@xterm/addon-serialize');
const CHUNK = 64 * 1024;

const make = () => new Terminal({ cols: 80, rows: 24, scrollback: 5000, allowProposedApi: true });
const spent = (from) => process.cpuUsage(from).user + process.cpuUsage(from).system;
const feed = (term, bytes) => {
  for (let at = 0; at < bytes.length; at += CHUNK) term._core.writeSync(bytes.subarray(at, at + CHUNK));
};

console.log('\n@xterm/headless, MB/s');
for (const name of ['plain-log-lines', 'dense-colour', 'full-screen-redraw', 'CJK-and-emoji']) {
  const bytes = fs.readFileSync(path.join(process.argv[2], name));
  let best = Infinity;
  for (let round = 0; round < 3; round++) {
    const term = make();
    const from = process.cpuUsage();
    feed(term, bytes);
    best = Math.min(best, spent(from));
    term.dispose();
  }
  const [speed, ours] = [bytes.length / best, Number(fs.readFileSync(path.join(process.argv[2], `${name}.speed`)))];
  console.log(`${name.padEnd(20)}  ${speed.toFixed(1)}  (stead ${(ours / speed).toFixed(1)} x)`);
}

console.log('\n@xterm/addon-serialize, 5000 lines and the screen');
for (const name of ['plain-log-lines', 'dense-colour']) {
  const bytes = fs.readFileSync(path.join(process.argv[2], name));
  const term = make();
  const addon = new SerializeAddon();
  term.loadAddon(addon);
  feed(term, bytes.subarray(0, bytes.length / 2));
  let best = Infinity;
  let size = 0;
  for (let round = 0; round < 3; round++) {
    const from = process.cpuUsage();
    size = addon.serialize().length;
    best = Math.min(best, spent(from));
  }
  console.log(`${name.padEnd(20)}  ${(best / 1000).toFixed(1)} ms, ${Math.round(size / 1000)} KB`);
}
