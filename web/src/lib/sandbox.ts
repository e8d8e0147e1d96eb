/** What a person enters about a sandbox, as a request. */

import { Problem } from "../api/client.ts";

const UNITS: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400 };

/** The seconds of a duration such as `90`, `30m`, `2h` or `1h 30m`; null if it is none. */
export function secondsOf(text: string): number | null {
  const trimmed = text.trim().toLowerCase();
  if (/^\d+$/.test(trimmed)) return Number(trimmed);
  const parts = trimmed.match(/\d+\s*[smhd]/g) ?? [];
  if (parts.length === 0 || parts.join("") !== trimmed.replace(/(?<=[smhd])\s+/g, "")) return null;
  return parts.reduce((sum, part) => sum + Number.parseInt(part, 10) * UNITS[part.at(-1)!]!, 0);
}

/** Labels such as `team=web, stage=test`; null if one has no name. */
export function labelsOf(text: string): Record<string, string> | null {
  const pairs = text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "")
    .map((part): [string, string] => {
      const at = part.indexOf("=");
      return at < 0 ? ["", ""] : [part.slice(0, at).trim(), part.slice(at + 1).trim()];
    });
  return pairs.some(([name]) => name === "") ? null : Object.fromEntries(pairs);
}

const invalid = (field: string, detail: string): Problem =>
  new Problem(400, "invalid_body", detail, [{ pointer: `/${field}`, detail }]);

/** The seconds that were entered into a field, or the error to show there. */
export function lifetimeOf(text: string): number {
  const seconds = secondsOf(text);
  if (seconds === null) throw invalid("timeout_s", "must be a duration, for example 90s, 30m, 2h or 1d");
  return seconds;
}

/** The fields that the server takes as they were entered. */
const PLAIN = ["name", "provider", "image", "snapshot", "cpus", "memory", "disk", "egress"];

/** The request that creates a sandbox. Throws the error of the field that is wrong. */
export function sandboxRequest(entered: Record<string, string>): Record<string, unknown> {
  const body: Record<string, unknown> = {};
  for (const field of PLAIN) if (entered[field]?.trim()) body[field] = entered[field].trim();
  if (entered.timeout_s?.trim()) {
    body.timeout_s = lifetimeOf(entered.timeout_s);
    body.on_timeout = entered.on_timeout || "suspend";
  }
  if (entered.labels?.trim()) {
    const labels = labelsOf(entered.labels);
    if (labels === null) throw invalid("labels", "must be NAME=VALUE, separated by commas");
    body.labels = labels;
  }
  return body;
}
