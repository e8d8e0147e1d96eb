// Writes the screen of xterm.js at the end of each recording to NAME.grid next to it, for
// tests that run without Node.
//
// usage: node expect.mjs

import fs from 'node:fs';
import path from 'node:path';
import { recordings, terminal, write } from './lib.mjs';

for (const { file, bytes, cols, rows } of recordings()) {
  const term = terminal(cols, rows);
  write(term, bytes);
  const buffer = term.buffer.active;
  const hidden = term._core.coreService.isCursorHidden;
  const out = [
    `cursor ${buffer.cursorY},${Math.min(buffer.cursorX, cols - 1)}${hidden ? ' hidden' : ''}`,
    `title ${term._core._inputHandler._windowTitle}`,
    `screen ${buffer.type}`,
    `scrollback ${buffer.length - rows}`,
  ];
  for (let y = 0; y < buffer.length; y++) {
    const row = buffer.getLine(y);
    out.push(`${row.isWrapped ? '+' : '|'}${row.translateToString(true).replace(/ +$/, '')}`);
  }
  fs.writeFileSync(file.replace(/\.rec$/, '.grid'), `${out.join('\n')}\n`);
  console.log(path.basename(file));
}
