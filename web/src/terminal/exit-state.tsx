/** Explains over the screen how the program of a terminal ended, and what can be done. */

import { Button } from "../ui/parts.tsx";
import { type Exit, exitText } from "./exit.ts";

export interface AfterExit {
  /** Starts the same program in a terminal of its own. */
  again: () => Promise<unknown>;
  remove: () => Promise<unknown>;
}

export function ExitState({ exit, actions }: { exit: Exit; actions: AfterExit | undefined }) {
  return (
    <div class="link-state exited" role="status">
      <span>
        {exitText(exit)} It is all that this terminal runs, so there is no prompt. Its output is kept until
        the terminal is deleted.
      </span>
      {actions && (
        <>
          <Button tone="main" onClick={actions.again}>
            Run it again
          </Button>
          <Button onClick={actions.remove}>Delete terminal</Button>
        </>
      )}
    </div>
  );
}
