// Generates streams that resemble the output of programs, from a seed.

export function random(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const below = (n) => Math.floor(next() * n);
  const pick = (list) => list[below(list.length)];
  return { below, pick, chance: (p) => next() < p };
}

const WORDS = 'the quick brown fox jumps over lazy dogs make test error: warning file.rs 0x7f 12345 {} () == -> // foo_bar'.split(' ');
const WIDE = ['中文字符', '日本語', '한국어', '😀🎉', 'é', 'e\u0301', '─│┌┐└┘', '👩\u200d💻', '👋🏽', '☺\ufe0f', '1\ufe0f\u20e3', '🇩🇪', 'ｆｕｌｌ', '…', '→'];

export function stream(seed, cols, rows) {
  const { below, pick, chance } = random(seed);
  const out = [];
  const n = (max) => 1 + below(max);
  const csi = (text) => out.push(`\x1b[${text}`);
  const words = (count) => {
    const text = [];
    for (let i = 0; i < count; i++) text.push(chance(0.08) ? pick(WIDE) : pick(WORDS));
    return text.join(' ');
  };
  const sgr = () => {
    const one = () => pick([
      () => `${n(9)}`, () => `${30 + below(8)}`, () => `${40 + below(8)}`, () => `${90 + below(8)}`,
      () => `38;5;${below(256)}`, () => `48;5;${below(256)}`, () => `38;2;${below(256)};${below(256)};${below(256)}`,
      () => `48;2;${below(256)};${below(256)};${below(256)}`, () => `4:${below(6)}`, () => `58:5:${below(256)}`,
      () => `${pick([21, 22, 23, 24, 25, 27, 28, 29, 39, 49, 53, 55])}`, () => '0',
    ])();
    csi(`${Array.from({ length: n(3) }, one).join(';')}m`);
    if (chance(0.4)) csi('m');
  };
  const actions = [
    [12, () => out.push(words(n(12)))],
    [3, () => out.push(words(40))],
    [10, () => out.push('\r\n')],
    [2, () => out.push(pick(['\n', '\r', '\b', '\t', '\x0b', '\x07', '\x0e', '\x0f', '\x00', '\x7f']))],
    [8, sgr],
    [5, () => csi(`${n(rows + 1)};${n(cols + 2)}H`)],
    [4, () => csi(`${below(cols)}${pick(['A', 'B', 'C', 'D', 'E', 'F', 'G', 'd', 'e', 'a', '`'])}`)],
    [3, () => csi(`${below(4)}${pick(['J', 'K', '?J', '?K'].map((k) => k.at(-1)))}`)],
    [1, () => csi(`?${below(3)}${pick(['J', 'K'])}`)],
    [3, () => csi(`${below(9)}${pick(['L', 'M', 'P', '@', 'X', 'S', 'T', 'b', 'I', 'Z'])}`)],
    [1, () => csi(`${below(5)}${pick([' @', ' A', "'}", "'~"])}`)],
    [2, () => { const top = n(rows); csi(`${top};${top + below(rows)}r`); }],
    [1, () => csi('r')],
    [1, () => csi(`?${pick([1, 5, 7, 12, 25, 45, 66, 1000, 1002, 1003, 1004, 1006, 2004])}${pick(['h', 'l'])}`)],
    [0.5, () => csi(`?6${pick(['h', 'l'])}`)],
    [1, () => csi(`4${pick(['h', 'l'])}`)],
    [1, () => csi(`?${pick([1049, 1047, 47, 1048])}${pick(['h', 'l'])}`)],
    [1.5, () => out.push(pick(['\x1b7', '\x1b8', '\x1bD', '\x1bM', '\x1bE', '\x1bH', '\x1b=', '\x1b>', '\x1b#8']))],
    [1, () => out.push(`\x1b${pick(['(', ')', '*', '+'])}${pick(['0', 'B', 'A', 'K'])}`)],
    [0.5, () => out.push(pick(['\x1bn', '\x1bo', '\x1b~', '\x1b|']))],
    [1, () => csi(`${pick(['', '0', '3'])}g`)],
    [1, () => csi(`${below(7)} q`)],
    [0.7, () => csi(`${below(3)}"q`)],
    [1, () => out.push(`\x1b]${pick([0, 1, 2])};${words(2)}${pick(['\x07', '\x1b\\'])}`)],
    [1, () => out.push(`\x1b]8;${pick(['', 'id=a'])};http://example.com/${below(5)}\x1b\\${words(2)}\x1b]8;;\x1b\\`)],
    [0.5, () => out.push(`\x1bP${pick(['q', '$q', '+q'])}${pick(['m', 'r', '#0;2;0;0;0'])}\x1b\\`)],
    [0.3, () => out.push('\x1b_Ga=T;AAAA\x1b\\')],
    [0.3, () => csi('!p')],
    [0.15, () => out.push('\x1bc')],
    [0.5, () => csi(`${pick(['5n', '6n', 'c', '>c', '?6n', '?25$p', '4$p', '18t', '22t', '23t'])}`)],
    [0.4, () => out.push(pick(['\u009b5A', '\u0084', '\u0085', '\u0088', '\u009d2;x\u009c', '\x1b[1\x18', '\x1b[3\n1m']))],
  ];
  const total = actions.reduce((sum, [weight]) => sum + weight, 0);
  const count = 20 + below(250);
  for (let i = 0; i < count; i++) {
    let at = (below(1e6) / 1e6) * total;
    for (const [weight, act] of actions) {
      at -= weight;
      if (at < 0) { act(); break; }
    }
  }
  return Buffer.from(out.join(''));
}
