/** The fields of the preferences of this browser. */

import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import { type NotifyPreferences, type Preferences, prefer, usePreferences } from "../lib/preferences.ts";
import { NotificationPermission } from "../ui/notification-permission.tsx";

interface ChoiceProps<T extends string> {
  label: string;
  value: T;
  options: { value: T; label: string }[];
  choose: (value: T) => void;
}

/** A choice of few, all of them visible. */
function Choice<T extends string>({ label, value, options, choose }: ChoiceProps<T>) {
  const name = useId();
  return (
    <fieldset class="choice">
      <legend>{label}</legend>
      <div class="choice-options">
        {options.map((option) => (
          <label key={option.value}>
            <input
              type="radio"
              name={name}
              checked={option.value === value}
              onChange={() => choose(option.value)}
            />
            <span>{option.label}</span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}

interface CheckProps {
  checked: boolean;
  change: (checked: boolean) => void;
  children: ComponentChildren;
}

function Check({ checked, change, children }: CheckProps) {
  return (
    <label class="check">
      <input type="checkbox" checked={checked} onChange={(event) => change(event.currentTarget.checked)} />
      <span>{children}</span>
    </label>
  );
}

export function AppearanceFields() {
  const { theme, density } = usePreferences();
  return (
    <>
      <Choice
        label="Theme"
        value={theme}
        options={[
          { value: "system", label: "System" },
          { value: "light", label: "Light" },
          { value: "dark", label: "Dark" },
        ]}
        choose={(value) => prefer({ theme: value })}
      />
      <Choice
        label="Density"
        value={density}
        options={[
          { value: "comfortable", label: "Comfortable" },
          { value: "dense", label: "Dense" },
        ]}
        choose={(value) => prefer({ density: value })}
      />
    </>
  );
}

export function PersonFields() {
  const { name } = usePreferences();
  return (
    <label class="labelled">
      <span>Your name, shown to others while you have control</span>
      <input value={name} maxLength={40} onChange={(event) => prefer({ name: event.currentTarget.value })} />
    </label>
  );
}

const TERMINAL_THEMES: { value: Preferences["terminalTheme"]; label: string }[] = [
  { value: "app", label: "Same as the app" },
  { value: "light", label: "Light" },
  { value: "dark", label: "Dark" },
  { value: "contrast", label: "High contrast" },
];

const PASTE_GUARDS: { value: Preferences["pasteGuard"]; label: string }[] = [
  { value: "risky", label: "If each line would run at once" },
  { value: "always", label: "Always" },
  { value: "never", label: "Never" },
];

export function TerminalFields() {
  const { fontSize, fontFamily, terminalTheme, scrollback, copyOnSelect, pasteGuard, screenReader } =
    usePreferences();
  return (
    <>
      <Choice
        label="Colours"
        value={terminalTheme}
        options={TERMINAL_THEMES}
        choose={(value) => prefer({ terminalTheme: value })}
      />
      <div class="field-row">
        <label class="labelled">
          <span>Terminal text size</span>
          <input
            type="number"
            min={8}
            max={32}
            value={fontSize}
            onChange={(event) => prefer({ fontSize: event.currentTarget.valueAsNumber })}
          />
        </label>
        <label class="labelled grow">
          <span>Font</span>
          <input
            value={fontFamily}
            maxLength={60}
            placeholder="System monospace"
            onChange={(event) => prefer({ fontFamily: event.currentTarget.value })}
          />
        </label>
        <label class="labelled">
          <span>Lines of scrollback</span>
          <input
            type="number"
            min={0}
            max={100000}
            step={1000}
            value={scrollback}
            onChange={(event) => prefer({ scrollback: event.currentTarget.valueAsNumber })}
          />
        </label>
      </div>
      <Choice
        label="Confirm a paste of several lines"
        value={pasteGuard}
        options={PASTE_GUARDS}
        choose={(value) => prefer({ pasteGuard: value })}
      />
      <Check checked={copyOnSelect} change={(checked) => prefer({ copyOnSelect: checked })}>
        Copy text when it is selected
      </Check>
      <Check checked={screenReader} change={(checked) => prefer({ screenReader: checked })}>
        Screen reader mode
      </Check>
    </>
  );
}

const NOTICES: { name: keyof NotifyPreferences; label: string }[] = [
  { name: "handoffs", label: "An agent asks for input, a secret or an approval" },
  { name: "waiting", label: "A command waits for input" },
  { name: "programs", label: "A program in a terminal sends a notification" },
];

export function NotificationFields() {
  const { notify } = usePreferences();
  return (
    <>
      {NOTICES.map(({ name, label }) => (
        <Check
          key={name}
          checked={notify[name]}
          change={(checked) => prefer({ notify: { ...notify, [name]: checked } })}
        >
          {label}
        </Check>
      ))}
      <NotificationPermission />
    </>
  );
}
