/**
 * The text editor. Loaded on demand.
 *
 * It lives in a shadow root: there its style sheets are objects, which the page's policy allows, and not style
 * elements, which it forbids.
 */

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import {
  bracketMatching,
  HighlightStyle,
  indentOnInput,
  indentUnit,
  syntaxHighlighting,
} from "@codemirror/language";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { languageOf } from "./languages.ts";

const THEME = EditorView.theme({
  "&": { height: "100%", backgroundColor: "var(--screen)", color: "var(--text)", fontSize: "13px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5", overflow: "auto" },
  ".cm-content": { caretColor: "var(--main)" },
  ".cm-cursor": { borderLeftColor: "var(--main)" },
  ".cm-gutters": {
    backgroundColor: "var(--screen)",
    color: "var(--quiet)",
    borderRight: "1px solid var(--line)",
  },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--sunken)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--busy-wash) !important",
  },
  ".cm-selectionMatch": { backgroundColor: "var(--warn-wash)" },
  ".cm-searchMatch": { backgroundColor: "var(--warn-wash)", outline: "1px solid var(--warn)" },
  ".cm-panels": { backgroundColor: "var(--raised)", color: "var(--text)" },
  ".cm-panels.cm-panels-top": { borderBottom: "1px solid var(--line)" },
  ".cm-panels.cm-panels-bottom": { borderTop: "1px solid var(--line)" },
  ".cm-textfield": { backgroundColor: "var(--raised)", border: "1px solid var(--line-strong)" },
  ".cm-button": {
    backgroundImage: "none",
    backgroundColor: "var(--raised)",
    border: "1px solid var(--line-strong)",
  },
});

const HIGHLIGHT = HighlightStyle.define([
  { tag: [tags.keyword, tags.modifier, tags.operatorKeyword], color: "var(--busy)" },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: "var(--good)" },
  { tag: [tags.comment, tags.meta], color: "var(--quiet)", fontStyle: "italic" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--warn)" },
  {
    tag: [tags.typeName, tags.className, tags.tagName, tags.definition(tags.variableName)],
    color: "var(--main)",
  },
  { tag: [tags.propertyName, tags.attributeName], color: "var(--main)" },
  { tag: tags.heading, fontWeight: "700", color: "var(--main)" },
  { tag: tags.strong, fontWeight: "700" },
  { tag: tags.emphasis, fontStyle: "italic" },
  { tag: [tags.link, tags.url], textDecoration: "underline" },
  { tag: tags.inserted, color: "var(--good)" },
  { tag: [tags.deleted, tags.invalid], color: "var(--bad)" },
]);

export interface EditorOptions {
  name: string;
  text: string;
  onChange(text: string): void;
  onSave(): void;
}

export class Editor {
  readonly #view: EditorView;

  constructor(host: HTMLElement, { name, text, onChange, onSave }: EditorOptions) {
    const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
    const language = new Compartment();
    this.#view = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: text,
        extensions: [
          EditorState.lineSeparator.of(lineBreakOf(text)),
          lineNumbers(),
          history(),
          drawSelection(),
          indentOnInput(),
          indentUnit.of(indentOf(text)),
          bracketMatching(),
          highlightActiveLine(),
          highlightSelectionMatches(),
          search({ top: true }),
          language.of([]),
          THEME,
          syntaxHighlighting(HIGHLIGHT),
          EditorView.contentAttributes.of({ "aria-label": `Content of ${name}` }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) onChange(this.text);
          }),
          keymap.of([
            {
              key: "Mod-s",
              preventDefault: true,
              run: () => {
                onSave();
                return true;
              },
            },
            indentWithTab,
            ...defaultKeymap,
            ...historyKeymap,
            ...searchKeymap,
          ]),
        ],
      }),
    });
    void languageOf(name).then(
      (loaded) => this.#view.dispatch({ effects: language.reconfigure(loaded) }),
      () => {},
    );
  }

  /** The text with the line breaks that the file had. */
  get text(): string {
    return this.#view.state.sliceDoc();
  }

  focus(): void {
    this.#view.focus();
  }

  dispose(): void {
    this.#view.destroy();
  }
}

/** The line break of a text. Where they are mixed, carriage returns count as characters, and stay. */
const lineBreakOf = (text: string): string =>
  text.includes("\r\n") && !/(^|[^\r])\n/.test(text) ? "\r\n" : "\n";

/** The indentation that a text uses. */
function indentOf(text: string): string {
  const indented = /^(\t| {2,8})\S/m.exec(text)?.[1];
  return indented ?? "  ";
}
