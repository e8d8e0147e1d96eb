/** The search bar of a terminal. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon } from "../ui/icons.tsx";
import { MAX_MATCHES, type Matches, type Screen, type Search } from "./screen.ts";

export function Find({ screen, close }: { screen: Screen | undefined; close: () => void }) {
  const field = useRef<HTMLInputElement>(null);
  const [matches, setMatches] = useState<Matches | null>(null);
  const [letters, setLetters] = useState<Search["letters"]>("any case");
  useLayoutEffect(() => field.current?.focus(), []);
  const search = (direction: Search["direction"], by: Search["letters"] = letters): void =>
    void screen
      ?.find(field.current?.value ?? "", { direction, letters: by })
      .then((found) => setMatches(field.current?.value ? found : null));
  const leave = (): void => {
    void screen?.find("", { direction: "next", letters });
    close();
  };
  return (
    <form
      class="find"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        search("previous");
      }}
      onKeyDown={(event) => {
        if (event.key === "Enter" && event.shiftKey) search("next");
        else if (event.key === "Escape") leave();
        else return;
        event.preventDefault();
        event.stopPropagation();
      }}
    >
      <input
        ref={field}
        type="search"
        placeholder="Search the scrollback"
        aria-label="Search the scrollback"
        onInput={() => search("previous")}
      />
      <span class="quiet-text match-count" role="status">
        {matchText(matches)}
      </span>
      <button
        type="button"
        class="button ghost"
        aria-pressed={letters === "same case"}
        aria-label="Match case"
        title="Match case"
        onClick={() => {
          const other = letters === "same case" ? "any case" : "same case";
          setLetters(other);
          search("previous", other);
        }}
      >
        Aa
      </button>
      <button
        type="button"
        class="button ghost"
        aria-label="Previous match"
        title="Previous match (Enter)"
        onClick={() => search("previous")}
      >
        <Icon name="up" />
      </button>
      <button
        type="button"
        class="button ghost"
        aria-label="Next match"
        title="Next match (Shift-Enter)"
        onClick={() => search("next")}
      >
        <Icon name="down" />
      </button>
      <button
        type="button"
        class="button ghost"
        aria-label="Close the search"
        title="Close (Esc)"
        onClick={leave}
      >
        <Icon name="close" />
      </button>
    </form>
  );
}

function matchText(matches: Matches | null): string {
  if (matches === null) return "";
  if (matches.count === 0) return "No matches";
  const count = matches.count >= MAX_MATCHES ? `${MAX_MATCHES}+` : String(matches.count);
  return matches.at > 0 ? `${matches.at} of ${count}` : `${count} matches`;
}
