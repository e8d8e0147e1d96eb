/**
 * Turns a command's output into runs of styled text. Only colours and weights are kept; every other control
 * sequence is dropped, a carriage return overwrites its line, and the result is text, never markup.
 */

export interface Style {
  fg?: string;
  bg?: string;
  bold?: true;
  dim?: true;
  italic?: true;
  underline?: true;
  inverse?: true;
  strike?: true;
}

export interface Run {
  text: string;
  style: Style;
}

const CSI = /\x1b\[([0-9:;<=>?]*)([ -/]*)([@-~])/;
/** OSC, DCS, APC, PM and SOS up to their end. */
const STRING = /\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)/;
const SHORT_ESCAPE = /\x1b[ -/]*[0-~]/;
const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]/;
const ESCAPE = new RegExp([CSI, STRING, SHORT_ESCAPE, CONTROL].map(({ source }) => source).join("|"), "g");

/** `palette:N` is one of the sixteen named colours, defined in the style sheet. */
const palette = (index: number): string => `palette:${index}`;

function colour(index: number): string {
  if (index < 16) return palette(index);
  if (index > 231) {
    const grey = 8 + (index - 232) * 10;
    return `rgb(${grey},${grey},${grey})`;
  }
  const level = (part: number): number => (part === 0 ? 0 : 55 + part * 40);
  const cube = index - 16;
  return `rgb(${level(Math.floor(cube / 36))},${level(Math.floor(cube / 6) % 6)},${level(cube % 6)})`;
}

/** Parses the colour after 38 or 48. Returns it with the number of parameters used. */
function extended(codes: number[], at: number): [string | null, number] {
  const byte = (value: number | undefined): value is number =>
    value !== undefined && value >= 0 && value <= 255;
  if (codes[at + 1] === 5) {
    const index = codes[at + 2];
    return [byte(index) ? colour(index) : null, 2];
  }
  if (codes[at + 1] === 2) {
    const [red, green, blue] = [codes[at + 2], codes[at + 3], codes[at + 4]];
    return [byte(red) && byte(green) && byte(blue) ? `rgb(${red},${green},${blue})` : null, 4];
  }
  return [null, codes.length];
}

function restyle(style: Style, parameters: string): Style {
  // Colons separate sub-parameters; the empty colour space in 38:2::R:G:B is dropped.
  const codes = parameters
    .replace(/([34]8):2::?/g, "$1;2;")
    .split(/[;:]/)
    .map((part) => (part === "" ? 0 : Number(part)));
  let next = { ...style };
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at]!;
    switch (code) {
      case 0:
        next = {};
        break;
      case 1:
        next.bold = true;
        break;
      case 2:
        next.dim = true;
        break;
      case 3:
        next.italic = true;
        break;
      case 4:
        next.underline = true;
        break;
      case 7:
        next.inverse = true;
        break;
      case 9:
        next.strike = true;
        break;
      case 22:
        delete next.bold;
        delete next.dim;
        break;
      case 23:
        delete next.italic;
        break;
      case 24:
        delete next.underline;
        break;
      case 27:
        delete next.inverse;
        break;
      case 29:
        delete next.strike;
        break;
      case 39:
        delete next.fg;
        break;
      case 49:
        delete next.bg;
        break;
      case 38:
      case 48: {
        const [found, used] = extended(codes, at);
        if (found) next[code === 38 ? "fg" : "bg"] = found;
        at += used;
        break;
      }
      default:
        if (code >= 30 && code <= 37) next.fg = palette(code - 30);
        else if (code >= 40 && code <= 47) next.bg = palette(code - 40);
        else if (code >= 90 && code <= 97) next.fg = palette(code - 82);
        else if (code >= 100 && code <= 107) next.bg = palette(code - 92);
    }
  }
  return next;
}

/** Splits an output into runs. */
export function runsOf(output: string): Run[] {
  const done: Run[] = [];
  let line: Run[] = [];
  let style: Style = {};
  let overwrite = false;

  const put = (run: Run): void => {
    const last = line.at(-1);
    if (last && last.style === run.style) last.text += run.text;
    else line.push(run);
  };
  const plain = (text: string): void => {
    for (const part of text.match(/\r+\n|\n|\r|[^\r\n]+/g) ?? []) {
      if (part.endsWith("\n")) {
        overwrite = false;
        put({ text: "\n", style });
        done.push(...line);
        line = [];
      } else if (part === "\r") {
        overwrite = true;
      } else {
        // A progress bar redraws its line from the start.
        if (overwrite) line = [];
        overwrite = false;
        put({ text: part, style });
      }
    }
  };

  let from = 0;
  for (const match of output.matchAll(ESCAPE)) {
    plain(output.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[3] === "m" && match[2] === "" && !/[<=>?]/.test(match[1] ?? ""))
      style = restyle(style, match[1] ?? "");
  }
  plain(output.slice(from));
  return [...done, ...line];
}

/** The output as plain text, for search and for copying. */
export const plainOf = (output: string): string =>
  runsOf(output)
    .map((run) => run.text)
    .join("");
