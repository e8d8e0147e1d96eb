/** Texts about providers. */

import type { Provider } from "../api/types.ts";

const KEY = /^key: set (.+)$/;
const ENGINE = /^engine: /;

/** What a person has to do before a provider works, from one entry of its `missing`. */
export function missingText(missing: string): string {
  const key = KEY.exec(missing);
  if (key) return `Not configured. Set ${key[1]}.`;
  if (ENGINE.test(missing)) return "No container engine found. Install Docker or Podman, or set docker.host.";
  return `Missing ${missing}.`;
}

/** A command that does what one entry of `missing` asks for; null where there is none. */
export function setUpCommand(missing: string): string | null {
  const variable = /\b[A-Z][A-Z0-9]*_API_KEY\b/.exec(missing);
  if (KEY.test(missing) && variable) return `${variable[0]}=… stead serve`;
  return ENGINE.test(missing) ? "sudo apt install podman" : null;
}

/** What a provider can do, as short phrases. */
export function capabilitiesOf({ capabilities = {} }: Provider): string[] {
  const { hosted, pause, metrics, isolation } = capabilities;
  return [
    Array.isArray(isolation) && isolation.length > 0 ? "isolated" : "commands run as you, without isolation",
    ...(hosted === true ? ["live terminals"] : ["commands only, no live terminal"]),
    ...(typeof pause === "string" && pause !== "none" ? ["can be paused"] : []),
    ...(metrics === true ? ["reports its usage"] : []),
  ];
}
