/** Recognizes environment variables that may hold secrets. */

const NAMES = [
  /SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|AUTH|COOKIE|SESSION_?ID|DSN|SALT|SIGNATURE/i,
  /API_?KEY|ACCESS_?KEY|_KEY$|^KEY$/i,
];
/** user:password@ in an address. */
const ADDRESS = /\/\/[^/\s:@]*:[^/\s@]+@/;
/** Prefixes of well-known keys, JSON web tokens, private keys. */
const SHAPES = [
  /^(sk|pk|rk|ghp|gho|ghs|glpat|xox[a-z]|AKIA|ASIA|AIza)[-_A-Za-z0-9]{8,}/,
  /^eyJ[\w-]+\.[\w-]+\.[\w-]+/,
  /-----BEGIN [A-Z ]*PRIVATE KEY/,
];

/** Whether a variable may hold a secret, by its name or by its value. */
export const isSecret = (name: string, value: string | null): boolean =>
  NAMES.some((pattern) => pattern.test(name)) ||
  (value !== null && [ADDRESS, ...SHAPES].some((pattern) => pattern.test(value)));

/** Of fixed length, so that it does not reveal the length of the secret. */
export const MASK = "••••••••";

const DECLARATION = /^((?:declare|typeset|export|readonly)(?: -\S+)* ([A-Za-z_]\w*)=)(.*)$/;

/** A line of a shell's state without its value, if that may be a secret. */
export function maskLine(line: string): string {
  const found = DECLARATION.exec(line);
  if (!found) return line;
  const [, head, name, value] = found;
  return isSecret(name!, value!.replace(/^["'$]+|["']$/g, "")) ? `${head}${MASK}` : line;
}
