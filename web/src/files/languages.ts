/** The languages that the editor highlights. Each is loaded when a file of it is opened. */

import { type LanguageSupport, StreamLanguage, type StreamParser } from "@codemirror/language";
import type { Extension } from "@codemirror/state";
import { extensionOf } from "../lib/file-tree.ts";

type Loader = () => Promise<LanguageSupport | StreamLanguage<unknown>>;

const legacy =
  <Parsers>(load: () => Promise<Parsers>, pick: (parsers: Parsers) => StreamParser<unknown>): Loader =>
  async () =>
    StreamLanguage.define(pick(await load()));

const javascript =
  (options: { jsx?: boolean; typescript?: boolean }): Loader =>
  async () =>
    (await import("@codemirror/lang-javascript")).javascript(options);
const python: Loader = async () => (await import("@codemirror/lang-python")).python();
const rust: Loader = async () => (await import("@codemirror/lang-rust")).rust();
const go: Loader = async () => (await import("@codemirror/lang-go")).go();
const cpp: Loader = async () => (await import("@codemirror/lang-cpp")).cpp();
const html: Loader = async () => (await import("@codemirror/lang-html")).html();
const css: Loader = async () => (await import("@codemirror/lang-css")).css();
const json: Loader = async () => (await import("@codemirror/lang-json")).json();
const yaml: Loader = async () => (await import("@codemirror/lang-yaml")).yaml();
const markdown: Loader = async () => (await import("@codemirror/lang-markdown")).markdown();
const shell = legacy(
  () => import("@codemirror/legacy-modes/mode/shell"),
  (parsers) => parsers.shell,
);
const toml = legacy(
  () => import("@codemirror/legacy-modes/mode/toml"),
  (parsers) => parsers.toml,
);
const dockerfile = legacy(
  () => import("@codemirror/legacy-modes/mode/dockerfile"),
  (parsers) => parsers.dockerFile,
);
const ruby = legacy(
  () => import("@codemirror/legacy-modes/mode/ruby"),
  (parsers) => parsers.ruby,
);
const lua = legacy(
  () => import("@codemirror/legacy-modes/mode/lua"),
  (parsers) => parsers.lua,
);
const diff = legacy(
  () => import("@codemirror/legacy-modes/mode/diff"),
  (parsers) => parsers.diff,
);
const properties = legacy(
  () => import("@codemirror/legacy-modes/mode/properties"),
  (parsers) => parsers.properties,
);
const sql = legacy(
  () => import("@codemirror/legacy-modes/mode/sql"),
  (parsers) => parsers.standardSQL,
);

const BY_EXTENSION: Record<string, Loader> = {
  js: javascript({ jsx: true }),
  mjs: javascript({}),
  cjs: javascript({}),
  jsx: javascript({ jsx: true }),
  ts: javascript({ typescript: true }),
  mts: javascript({ typescript: true }),
  tsx: javascript({ jsx: true, typescript: true }),
  py: python,
  pyi: python,
  rs: rust,
  go,
  c: cpp,
  h: cpp,
  cc: cpp,
  cpp,
  hpp: cpp,
  html,
  htm: html,
  svg: html,
  xml: html,
  vue: html,
  css,
  scss: css,
  json,
  jsonl: json,
  jsonc: json,
  yaml,
  yml: yaml,
  md: markdown,
  markdown,
  sh: shell,
  bash: shell,
  zsh: shell,
  toml,
  lock: toml,
  rb: ruby,
  lua,
  diff,
  patch: diff,
  ini: properties,
  conf: properties,
  env: properties,
  properties,
  sql,
};

const BY_NAME: Record<string, Loader> = {
  Dockerfile: dockerfile,
  Containerfile: dockerfile,
  Gemfile: ruby,
  Rakefile: ruby,
  ".bashrc": shell,
  ".profile": shell,
  ".zshrc": shell,
};

/** Loads the language of a file by its name; nothing for an unknown one. */
export async function languageOf(name: string): Promise<Extension> {
  const load = BY_NAME[name] ?? BY_EXTENSION[extensionOf(name)];
  return load ? load() : [];
}
