/** The search in the commands and the output of all threads. */

import { get } from "./client.ts";

export interface MatchingLine {
  stream: "stdout" | "stderr" | "terminal";
  offset: number;
  text: string;
}

export interface SearchItem {
  command_id: string;
  thread_id: string;
  terminal_id: string;
  command: string;
  source: string;
  status: string;
  exit_code: number | null;
  created_at: string;
  in_command: boolean;
  lines: MatchingLine[];
  more_lines: boolean;
}

export interface SearchPage {
  items: SearchItem[];
  next_cursor: string | null;
  stopped: "items" | "bytes" | "time" | null;
  commands: number;
}

/** Searches one page, from where the page before ended. */
export function search(text: string, cursor: string | null): Promise<SearchPage> {
  const query = new URLSearchParams({ q: text, limit: "50", ...(cursor && { cursor }) });
  return get(`/api/search?${query}`);
}
