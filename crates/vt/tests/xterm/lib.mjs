// Parts of the differential test: xterm.js terminals with our character widths, their
// complete state as text, and our screens in a child process.

import fs from 'node:fs';
import path from 'node:path';
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import headless from '@xterm/headless';

const { Terminal } = headless;
const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.join(here, '../../../..');
export const SCROLLBACK = 5000;

const widths = new Uint8Array(0x110000).fill(1);
widths.fill(0, 0, 0x20);
widths.fill(0, 0x7f, 0xa0);
const table = fs.readFileSync(path.join(root, 'web/src/widths.ts'), 'utf8');
for (const [, first, last, width] of table.matchAll(/\[(0x[0-9a-f]+), (0x[0-9a-f]+), (\d)\]/g)) {
  widths.fill(Number(width), Number(first), Number(last) + 1);
}

// Character properties as xterm.js packs them: the width in the high bits, "joins" in the lowest.
const provider = {
  version: 'stead',
  wcwidth: (code) => widths[code],
  charProperties(code, before) {
    let width = widths[code];
    let joins = width === 0 && before !== 0;
    if (joins) {
      const old = (before >> 1) & 3;
      if (old === 0) joins = false;
      else width = Math.max(width, old);
    }
    return (width << 1) | (joins ? 1 : 0);
  },
};

export function terminal(cols, rows, scrollback = SCROLLBACK) {
  const term = new Terminal({
    cols, rows, scrollback, allowProposedApi: true, logLevel: 'off',
    windowOptions: { pushTitle: true, popTitle: true, getWinSizeChars: true },
  });
  term.unicode.register(provider);
  term.unicode.activeVersion = 'stead';
  return term;
}

// Returns whether xterm.js accepted the bytes: it throws on a few unusual sequences.
export function write(term, bytes) {
  try {
    term._core.writeSync(bytes);
    return true;
  } catch {
    return false;
  }
}

// The complete state of a terminal as text, in parts that can be compared separately.
export function state(term) {
  const core = term._core;
  const buffers = { normal: core.buffers.normal, alt: core.buffers.alt };
  const out = {};
  for (const [name, buffer] of Object.entries(buffers)) {
    const active = buffer === core.buffers.active;
    const lines = [];
    for (let y = 0; y < buffer.lines.length; y++) lines.push(line(core, buffer.lines.get(y)));
    out[`${name} cells`] = lines;
    if (name === 'normal' || active) {
      out[`${name} margins`] = `${buffer.scrollTop},${buffer.scrollBottom}`;
      const tabs = [];
      for (let x = 0; x < term.cols; x++) if (buffer.tabs[x]) tabs.push(x);
      out[`${name} tabs`] = tabs.join();
      // A cursor that was never saved is at 0, which always means the first row.
      const y = Math.max(0, buffer.savedY - buffer.ybase);
      out[`${name} saved`] = [Math.min(buffer.savedX, term.cols - 1), Math.min(y, term.rows - 1),
        color(buffer.savedCurAttrData.fg), color(buffer.savedCurAttrData.bg),
        JSON.stringify(buffer.savedCharset ?? null)].join();
      out[`${name} base`] = String(buffer.ybase);
    }
    if (active) out.cursor = `${name} ${buffer.x},${buffer.y}`;
  }
  const handler = core._inputHandler;
  const pen = handler._curAttrData;
  const extended = pen.bg & 0x10000000;
  const style = extended ? pen.extended.ext & 0x1fffffff : pen.extended.ext & 0x3ffffff;
  out.pen = [color(pen.fg), color(pen.bg), style, link(core, extended ? pen.extended.urlId : 0)].join();
  const modes = { ...core.coreService.decPrivateModes, ...core.coreService.modes };
  delete modes.synchronizedOutput;
  out.modes = JSON.stringify(modes);
  out['cursor hidden'] = String(core.coreService.isCursorHidden);
  out.mouse = `${core.coreMouseService.activeProtocol} ${core.coreMouseService.activeEncoding}`;
  out.options = `${term.options.cursorBlink} ${term.options.convertEol}`;
  const sets = core._charsetService;
  out.charsets = JSON.stringify([sets.glevel, sets.charset ?? null,
    [0, 1, 2, 3].map((g) => sets._charsets[g] ?? null)]);
  out.titles = JSON.stringify([handler._windowTitle, handler._iconName,
    handler._windowTitleStack, handler._iconNameStack]);
  out.joins = String(handler._parser.precedingJoinState >> 1);
  return out;
}

function link(core, id) {
  return id ? JSON.stringify(core._oscLinkService.getLinkData(id)?.uri) : '';
}

function line(core, row) {
  const cells = [];
  for (let x = 0; x < row.length; x++) {
    const content = row._data[x * 3];
    const [fg, bg] = [row._data[x * 3 + 1], row._data[x * 3 + 2]];
    let cell = `${row.getString(x)}|${content >>> 22}|${color(fg)}|${color(bg)}`;
    if (bg & 0x10000000) {
      const ext = row._extendedAttrs[x];
      // xterm.js drops the target of a link when the row it started in is erased.
      const uri = link(core, ext?.urlId);
      cell += `|${ext?.ext}|${uri === undefined ? '?' : uri}`;
    }
    cells.push(cell);
  }
  // Trailing blanks are numerous and carry no information.
  while (cells.length && cells[cells.length - 1] === '|1|0|0') cells.pop();
  return (row.isWrapped ? '+' : ' ') + cells.join(' ');
}

// The bits above the index of a palette color have no meaning.
function color(word) {
  const mode = word & 0x3000000;
  if (mode === 0x1000000 || mode === 0x2000000) word &= ~0xffff00;
  return word >>> 0;
}

// Returns the names of the parts that differ, each with its first difference.
export function differences(a, b, parts = Object.keys(a)) {
  const found = [];
  for (const part of parts) {
    const [left, right] = [a[part], b[part]];
    if (Array.isArray(left)) {
      const blank = (row) => row === undefined || row === ' ';
      for (let y = 0; y < Math.max(left.length, right.length); y++) {
        if (!same(left[y], right[y]) && !(blank(left[y]) && blank(right[y]))) {
          found.push(`${part} row ${y}: ${firstCell(left[y], right[y])}`);
          break;
        }
      }
    } else if (left !== right) {
      found.push(`${part}: ${left} <> ${right}`);
    }
  }
  return found;
}

// A link whose target was dropped equals any other link.
function same(a, b) {
  if (a === b || a === undefined || b === undefined || !`${a}${b}`.includes('|?')) return a === b;
  const any = (text) => text.replace(/\|(\?|"[^" ]*")(?= |$)/g, '|?');
  return any(a) === any(b);
}

function firstCell(a = ' ', b = ' ') {
  if (a[0] !== b[0]) return `wrapped ${a[0]} <> ${b[0]}`;
  const [left, right] = [a.slice(1).split(' '), b.slice(1).split(' ')];
  for (let x = 0; ; x++) {
    if (left[x] !== right[x] || x > left.length) return `piece ${x}: ${left[x]} <> ${right[x]}`;
  }
}

// Recordings of real programs: the first line of a file is the size, the rest is output.
export function recordings() {
  const folder = path.join(root, 'crates/vt/tests/recordings');
  return fs.readdirSync(folder).filter((file) => file.endsWith('.rec')).sort().map((name) => {
    const file = path.join(folder, name);
    const all = fs.readFileSync(file);
    const end = all.indexOf(10);
    const [cols, rows] = all.subarray(0, end).toString().split('x').map(Number);
    return { name, file, bytes: all.subarray(end + 1), cols, rows };
  });
}

// Our screens, in one process that answers many requests.
export class Screens {
  constructor(program) {
    this.process = spawn(program, [], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.chunks = [];
    this.have = 0;
    this.wanted = null;
    this.process.stdout.on('data', (chunk) => {
      this.chunks.push(chunk);
      this.have += chunk.length;
      this.wanted?.();
    });
    this.process.on('exit', (code) => {
      if (code) throw new Error(`the screens ended with ${code}`);
    });
  }

  async take(count) {
    while (this.have < count) await new Promise((resolve) => (this.wanted = resolve));
    const all = Buffer.concat(this.chunks);
    this.chunks = [all.subarray(count)];
    this.have = all.length - count;
    return all.subarray(0, count);
  }

  async ask(bytes, { cols, rows, cut = bytes.length, scrollback = SCROLLBACK }) {
    const head = Buffer.alloc(16);
    head.writeUInt16LE(cols, 0);
    head.writeUInt16LE(rows, 2);
    head.writeUInt32LE(scrollback, 4);
    head.writeUInt32LE(cut, 8);
    head.writeUInt32LE(bytes.length, 12);
    this.process.stdin.write(Buffer.concat([head, bytes]));
    const parts = [];
    for (let i = 0; i < 3; i++) parts.push(await this.take((await this.take(4)).readUInt32LE(0)));
    return { snapshot: parts[0], json: JSON.parse(parts[1]), replies: parts[2] };
  }

  close() {
    this.process.stdin.end();
  }
}
