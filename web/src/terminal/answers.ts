/**
 * Keeps xterm from answering the program's questions.
 *
 * The server's screen is the only one that answers (device attributes, cursor position, colours, …). A browser's
 * answer would come twice, or to a question that was only replayed.
 */

import type { IDisposable, Terminal } from "@xterm/xterm";

/** Swallows every query that xterm knows an answer to. */
export function muteAnswers(terminal: Terminal): IDisposable[] {
  const { parser } = terminal;
  const swallow = (): boolean => true;
  const asksSize = new Set([11, 13, 14, 15, 16, 18, 19, 20, 21]);
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
    parser.registerCsiHandler({ final: "t" }, (params) => asksSize.has(Number(params[0]))),
    parser.registerDcsHandler({ intermediates: "$", final: "q" }, swallow),
    parser.registerDcsHandler({ intermediates: "+", final: "q" }, swallow),
  ];
  for (const colour of [4, 10, 11, 12]) {
    queries.push(parser.registerOscHandler(colour, (data) => data.split(";").includes("?")));
  }
  return queries;
}
