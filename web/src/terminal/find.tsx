/** The search bar of a terminal. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Button } from "../ui/parts.tsx";
import type { Screen } from "./screen.ts";

export function Find({ screen, close }: { screen: Screen | undefined; close: () => void }) {
  const field = useRef<HTMLInputElement>(null);
  const [found, setFound] = useState<boolean | null>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  const search = (direction: "next" | "previous"): void =>
    void screen
      ?.find(field.current?.value ?? "", direction)
      .then((any) => setFound(field.current?.value ? any : null));
  return (
    <form
      class="find"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        search("previous");
      }}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.stopPropagation();
        void screen?.find("", "next");
        close();
      }}
    >
      <input
        ref={field}
        type="search"
        placeholder="Search the scrollback"
        aria-label="Search the scrollback"
        onInput={() => search("previous")}
      />
      <span class="quiet-text" role="status">
        {found === false ? "No matches" : ""}
      </span>
      <Button onClick={() => search("previous")}>Previous</Button>
      <Button onClick={() => search("next")}>Next</Button>
      <Button onClick={close}>Close</Button>
    </form>
  );
}
