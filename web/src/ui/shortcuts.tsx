/** The list of keyboard shortcuts, on a page and in a dialog. */

import { SHORTCUTS } from "../lib/shortcuts.ts";
import { Button, useModal } from "./parts.tsx";

export function ShortcutList({ level }: { level: "h3" | "h4" }) {
  const Title = level;
  return (
    <div class="shortcuts">
      {SHORTCUTS.map((group) => (
        <section key={group.title}>
          <Title>{group.title}</Title>
          <dl>
            {group.shortcuts.map(({ keys, does }) => (
              <div key={does}>
                <dt>
                  {keys.map((together, index) => (
                    <span key={together.join(" ")} class="keys">
                      {index > 0 && <span class="quiet-text">or</span>}
                      {together.map((key) => (
                        <kbd key={key}>{key}</kbd>
                      ))}
                    </span>
                  ))}
                </dt>
                <dd>{does}</dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </div>
  );
}

export function ShortcutDialog({ close }: { close: () => void }) {
  const box = useModal();
  return (
    <dialog
      ref={box}
      class="dialog shortcut-dialog"
      aria-labelledby="shortcut-title"
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
    >
      <header class="dialog-head">
        <h2 id="shortcut-title">Keyboard shortcuts</h2>
        <Button onClick={close}>Close</Button>
      </header>
      <ShortcutList level="h3" />
    </dialog>
  );
}
