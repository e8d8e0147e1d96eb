/** Reads server-sent events out of text that comes in pieces. */

export interface ServerEvent {
  name: string;
  data: string;
  id: string | null;
}

/** Longer events are not ours; what is kept is bounded. */
const LONGEST = 1 << 20;

export class Events {
  #rest = "";
  #name = "";
  #data: string[] = [];
  #id: string | null = null;

  /** The events that this piece completes. */
  feed(piece: string): ServerEvent[] {
    const lines = (this.#rest + piece).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    if (this.#rest.length > LONGEST) this.#rest = "";
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
