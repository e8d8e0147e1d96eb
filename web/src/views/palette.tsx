/** The command palette: Ctrl-K, type, Enter. */

import { useEffect, useState } from "preact/hooks";
import { type Action, find } from "../lib/palette.ts";
import { useModal } from "../ui/parts.tsx";

interface Props {
  actions: Action[];
  /** Searches the commands and the output of all threads. */
  search: (text: string) => void;
  close: () => void;
}

export function Palette({ actions, search, close }: Props) {
  const box = useModal();
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const found = find(typed, actions).slice(0, 50);
  const text = typed.trim();
  if (text !== "")
    found.push({
      title: `Search commands and output for “${text}”`,
      hint: "all threads",
      run: () => search(text),
    });
  const chosen = Math.min(at, found.length - 1);

  useEffect(() => {
    box.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [chosen]);

  const run = (action: Action | undefined): void => {
    if (!action) return;
    close();
    // After the dialog has restored the focus, so that the action can move it.
    queueMicrotask(() => action.run());
  };
  const keys = (event: KeyboardEvent): void => {
    if (event.key === "ArrowDown") setAt((chosen + 1) % Math.max(1, found.length));
    else if (event.key === "ArrowUp") setAt((chosen - 1 + found.length) % Math.max(1, found.length));
    else if (event.key === "Enter") run(found[chosen]);
    else return;
    event.preventDefault();
  };

  return (
    <dialog
      ref={box}
      class="dialog palette"
      aria-label="Command palette"
      onKeyDown={keys}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onClick={(event) => {
        if (event.target === box.current) close();
      }}
    >
      <input
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found[chosen] ? `palette-${chosen}` : undefined}
        aria-label="Search threads and commands"
        placeholder="Search threads and commands"
        autocomplete="off"
        spellcheck={false}
        value={typed}
        onInput={(event) => {
          setTyped(event.currentTarget.value);
          setAt(0);
        }}
      />
      <div id="palette-list" class="palette-list" role="listbox" aria-label="Actions">
        {found.map((action, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the dialog handles the keys.
          <div
            key={action.title}
            id={`palette-${index}`}
            role="option"
            tabIndex={-1}
            aria-selected={index === chosen}
            onPointerMove={() => setAt(index)}
            onClick={() => run(action)}
          >
            <span>{action.title}</span>
            {action.hint && <span class="quiet-text">{action.hint}</span>}
          </div>
        ))}
      </div>
    </dialog>
  );
}
