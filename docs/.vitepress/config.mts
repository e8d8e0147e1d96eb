import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, posix } from "node:path";
import { transformerStyleToClass } from "@shikijs/transformers";
import { defineConfig } from "vitepress";

// The server serves the book below /docs, with a policy that refuses inline scripts and styles
// (docs/decisions/0042-the-book-in-the-binary.md).
const BASE = process.env.BOOK_BASE ?? "/docs/";
const codeColors = transformerStyleToClass({ classPrefix: "c-" });
const INLINE_SCRIPT = /<script id="[\w-]+">([\s\S]*?)<\/script>\s*/g;
const STYLE_ATTRIBUTE = /(<[a-z][^<>]*?) style="[^"]*"/g;
let inlineScripts = "";

// Links to files outside of docs/ (tests, source, examples) work in a checkout. The site has no copy of these
// files: with SOURCE_URL, such a link leads there, and without it the text of the link is all that remains.
const SOURCE_URL = process.env.SOURCE_URL?.replace(/\/$/, "");

const DECISIONS = new URL("../decisions/", import.meta.url);
const decisions = readdirSync(DECISIONS)
  .filter((name) => /^\d+-.*\.md$/.test(name))
  .sort()
  .map((name) => ({
    text: readFileSync(new URL(name, DECISIONS), "utf8").split("\n")[0].replace(/^# 0*/, "").replace(":", "."),
    link: `/decisions/${name.replace(/\.md$/, "")}`,
  }));

const page = (text: string, link: string) => ({ text, link });

export default defineConfig({
  title: "Stead",
  base: BASE,
  description: "Durable terminals and sandboxes for AI agents and people",
  lang: "en",
  cleanUrls: false,
  // The policy refuses the style element that would do it.
  appearance: { disableTransition: false },
  metaChunk: true,
  srcExclude: ["node_modules/**"],
  head: [
    ["link", { rel: "icon", href: "data:," }],
    ["link", { rel: "stylesheet", href: `${BASE}code.css` }],
    ["script", { src: `${BASE}address.js` }],
    ["script", { src: `${BASE}start.js` }],
  ],
  transformHtml(html) {
    inlineScripts = [...html.matchAll(INLINE_SCRIPT)].map((found) => found[1]).join("\n");
    // What is left after `codeColors` is set again by the page's own script.
    return html.replace(INLINE_SCRIPT, "").replace(STYLE_ATTRIBUTE, "$1");
  },
  buildEnd({ outDir }) {
    writeFileSync(join(outDir, "start.js"), inlineScripts);
    writeFileSync(join(outDir, "code.css"), codeColors.getCSS());
  },
  markdown: {
    codeTransformers: [codeColors],
    config(md) {
      md.core.ruler.push("links_out_of_the_book", (state) => {
        const folder = posix.dirname(state.env.relativePath ?? "index.md");
        for (const block of state.tokens) {
          let closing = 0;
          for (const token of block.children ?? []) {
            if (token.type === "link_open") {
              const href = token.attrGet("href") ?? "";
              const target = posix.normalize(posix.join(folder, href));
              if (/^([a-z]+:|#|\/)/.test(href) || !target.startsWith("../")) continue;
              const path = target.replace(/^(\.\.\/)+/, "");
              if (SOURCE_URL) {
                token.attrSet("href", `${SOURCE_URL}/${path}`);
                continue;
              }
              closing += 1;
              token.tag = "span";
              token.type = "span_open";
              token.attrs = [["title", path]];
            } else if (token.type === "link_close" && closing > 0) {
              closing -= 1;
              token.tag = "span";
              token.type = "span_close";
            }
          }
        }
      });
    },
  },
  themeConfig: {
    search: {
      provider: "local",
      options: {
        miniSearch: {
          // No functions: the page would evaluate their text, which the policy of the server refuses.
          searchOptions: { combineWith: "AND", fuzzy: 0.1, prefix: true },
        },
      },
    },
    outline: [2, 3],
    docFooter: { prev: "Previous", next: "Next" },
    nav: [
      page("Quick start", "/quick-start"),
      page("Concepts", "/concepts"),
      page("Reference", "/reference/"),
      page("Operations", "/operations/sizing"),
      // A page of the server, not of the book.
      { ...page("API", "/api/"), target: "_self" },
    ],
    sidebar: [
      {
        text: "Start",
        items: [
          page("What Stead is", "/"),
          page("Why, when, and when not", "/why"),
          page("Quick start", "/quick-start"),
          page("Install", "/install"),
          page("Concepts", "/concepts"),
        ],
      },
      {
        text: "Tutorials",
        items: [
          page("An agent in 15 minutes", "/tutorials/agent"),
          page("Watch and take over", "/tutorials/watch"),
          page("Secrets by hand-off", "/tutorials/secrets"),
          page("Your own image", "/tutorials/image"),
          page("A team server behind Caddy", "/tutorials/team-server"),
        ],
      },
      {
        text: "How to",
        items: [
          page("Copy files in and out", "/how-to/files"),
          page("Bring in a repository", "/how-to/repository"),
          page("Run long commands", "/how-to/long-commands"),
          page("Resume a stream", "/how-to/streams"),
          page("Limit a sandbox", "/how-to/sandboxes"),
          page("Run in Kubernetes", "/how-to/kubernetes"),
          page("Connect MCP clients", "/mcp"),
          page("Use agent frameworks", "/agents"),
          page("Choose a provider", "/providers"),
          page("Ask a person (hand-offs)", "/handoff"),
          page("Migrate from E2B", "/migrate-e2b"),
          page("Migrate from Daytona", "/migrate-daytona"),
        ],
      },
      { text: "Clients", items: [page("Python", "/python"), page("TypeScript", "/typescript")] },
      {
        text: "Reference",
        items: [
          page("Overview", "/reference/"),
          page("Command line", "/reference/cli"),
          page("Settings", "/reference/settings"),
          page("HTTP API", "/reference/api"),
          page("Error codes", "/reference/errors"),
          page("MCP tools", "/reference/mcp"),
          page("Metrics", "/reference/metrics"),
          page("API changelog", "/api-changelog"),
          page("Glossary", "/glossary"),
        ],
      },
      {
        text: "Operations",
        items: [
          page("Sizing", "/operations/sizing"),
          page("Backup and restore", "/operations/backup"),
          page("PostgreSQL", "/operations/postgresql"),
          page("Upgrade", "/operations/upgrade"),
          page("Security model", "/operations/security"),
          page("Limits", "/operations/limits"),
          page("Metrics and health", "/operations/metrics"),
          page("Troubleshooting", "/operations/troubleshooting"),
        ],
      },
      {
        text: "Background",
        items: [
          page("Comparisons", "/comparisons"),
          page("Benchmarks", "/benchmarks"),
          page("Reliability", "/reliability"),
          page("Dependencies", "/dependencies"),
          { text: "Decisions", collapsed: true, items: decisions },
        ],
      },
    ],
  },
});
