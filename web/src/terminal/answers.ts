/**
 * Keeps xterm from answering the program's queries.
 *
 * Only the server's screen answers (device attributes, cursor position, colours, …). A browser's answer would
 * be a second one, or one to a query that was only replayed.
 */

import type { IDisposable, Terminal } from "@xterm/xterm";

/** Swallows every query that xterm would answer. */
export function muteAnswers(terminal: Terminal): IDisposable[] {
  const { parser } = terminal;
  const swallow = (): boolean => true;
  const sizeQueries = new Set([11, 13, 14, 15, 16, 18, 19, 20, 21]);
  const queries: IDisposable[] = [
    ...["", ">", "="].map((prefix) =>
      parser.registerCsiHandler({ ...(prefix && { prefix }), final: "c" }, swallow),
    ),
    ...["", "?"].map((prefix) =>
      parser.registerCsiHandler({ ...(prefix && { prefix }), final: "n" }, swallow),
    ),
    ...["", "?"].map((prefix) =>
      parser.registerCsiHandler({ ...(prefix && { prefix }), intermediates: "$", final: "p" }, swallow),
    ),
    parser.registerCsiHandler({ prefix: ">", final: "q" }, swallow),
    parser.registerCsiHandler({ prefix: "?", final: "u" }, swallow),
    parser.registerCsiHandler({ final: "t" }, (params) => sizeQueries.has(Number(params[0]))),
    parser.registerDcsHandler({ intermediates: "$", final: "q" }, swallow),
    parser.registerDcsHandler({ intermediates: "+", final: "q" }, swallow),
  ];
  for (const colour of [4, 10, 11, 12]) {
    queries.push(parser.registerOscHandler(colour, (data) => data.split(";").includes("?")));
  }
  return queries;
}
