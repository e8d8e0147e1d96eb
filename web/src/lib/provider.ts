/** Texts about providers. */

const KEY = /^key: set (.+)$/;
const ENGINE = /^engine: /;

/** What a person has to do before a provider works, from one entry of its `missing`. */
export function missingText(missing: string): string {
  const key = KEY.exec(missing);
  if (key) return `Not configured. Set ${key[1]}.`;
  if (ENGINE.test(missing)) return "No container engine found. Install Docker or Podman, or set docker.host.";
  return `Missing ${missing}.`;
}
