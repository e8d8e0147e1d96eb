/** Parses server-sent events from text that arrives in chunks. */

export interface ServerEvent {
  name: string;
  data: string;
  id: string | null;
}

/** Longer lines are dropped, so that the buffer is bounded. */
const MAX_LINE_LENGTH = 1 << 20;

export class EventParser {
  #rest = "";
  #name = "";
  #data: string[] = [];
  #id: string | null = null;

  /** Returns the events that this chunk completes. */
  feed(chunk: string): ServerEvent[] {
    const lines = (this.#rest + chunk).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    if (this.#rest.length > MAX_LINE_LENGTH) this.#rest = "";
    return lines.flatMap((line) => this.#line(line));
  }

  #line(line: string): ServerEvent[] {
    if (line === "") {
      const event = { name: this.#name || "message", data: this.#data.join("\n"), id: this.#id };
      const something = this.#data.length > 0;
      this.#name = "";
      this.#data = [];
      this.#id = null;
      return something ? [event] : [];
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#name = value;
    else if (field === "data") this.#data.push(value);
    else if (field === "id") this.#id = value;
    return [];
  }
}
