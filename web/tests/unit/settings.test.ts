import { expect, test } from "vitest";
import { capabilitiesOf, setUpCommand } from "../../src/lib/provider.ts";
import { asksForShortcuts } from "../../src/lib/shortcuts.ts";

test("? opens the shortcuts outside of fields, and with Ctrl and Shift anywhere", () => {
  const press = (more: object): Parameters<typeof asksForShortcuts>[0] => ({
    key: "?",
    code: "Slash",
    ctrlKey: false,
    shiftKey: true,
    metaKey: false,
    altKey: false,
    ...more,
  });
  expect(asksForShortcuts(press({}), "page")).toBe(true);
  // Other keyboard layouts have the character on another key.
  expect(asksForShortcuts(press({ code: "Minus" }), "page")).toBe(true);
  expect(asksForShortcuts(press({}), "field")).toBe(false);
  expect(asksForShortcuts(press({ ctrlKey: true }), "field")).toBe(true);
  expect(asksForShortcuts(press({ ctrlKey: true, shiftKey: false, key: "/" }), "field")).toBe(false);
  expect(asksForShortcuts(press({ altKey: true }), "page")).toBe(false);
});

test("a provider shows its capabilities, and how it is set up", () => {
  expect(setUpCommand("key: set e2b.key or E2B_API_KEY")).toBe("E2B_API_KEY=… stead serve");
  expect(setUpCommand("engine: no container engine found")).toBe("sudo apt install podman");
  expect(setUpCommand("user namespaces")).toBe(null);
  expect(
    capabilitiesOf({
      name: "namespace",
      capabilities: { hosted: true, pause: "memory", metrics: true, isolation: ["namespaces"] },
    }),
  ).toEqual(["isolated", "live terminals", "can be paused", "reports its usage"]);
  expect(capabilitiesOf({ name: "local", capabilities: { hosted: true, isolation: [] } })[0]).toBe(
    "commands run as you, without isolation",
  );
});
