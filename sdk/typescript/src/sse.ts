/** Server-sent events, parsed from the body of a response. */

/** One event. `data` is its JSON. */
export interface ServerEvent {
  name: string;
  id: string | undefined;
  data: unknown;
}

/**
 * Parses events as their bytes arrive.
 *
 * An event counts only when the empty line after it has arrived: a connection that is cut inside an event loses
 * the whole event, which the next connection sends again.
 */
export class EventParser {
  readonly #decoder = new TextDecoder();
  #rest = "";
  #name = "";
  #id: string | undefined;
  #data: string[] = [];

  /** Returns the events that these bytes complete. */
  parse(bytes: Uint8Array): ServerEvent[] {
    const text = this.#rest + this.#decoder.decode(bytes, { stream: true });
    const events: ServerEvent[] = [];
    let start = 0;
    // What was left over contains no line end.
    for (let end = text.indexOf("\n", this.#rest.length); end !== -1; end = text.indexOf("\n", start)) {
      const line = text.slice(start, text[end - 1] === "\r" ? end - 1 : end);
      start = end + 1;
      const event = this.#line(line);
      if (event) events.push(event);
    }
    this.#rest = text.slice(start);
    return events;
  }

  #line(line: string): ServerEvent | undefined {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return undefined;
    const field = colon === -1 ? line : line.slice(0, colon);
    const skip = line[colon + 1] === " " ? colon + 2 : colon + 1;
    const value = colon === -1 ? "" : line.slice(skip);
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#name = value;
    else if (field === "id") this.#id = value;
    return undefined;
  }

  #dispatch(): ServerEvent | undefined {
    const [name, id, data] = [this.#name, this.#id, this.#data];
    this.#name = "";
    this.#id = undefined;
    this.#data = [];
    if (data.length === 0) return undefined;
    return { name: name || "message", id, data: JSON.parse(data.join("\n")) };
  }
}
