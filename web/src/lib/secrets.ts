/** Which environment variables are shown masked until asked for. */

const NAME =
  /(SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|_KEY$|^KEY$|AUTH|COOKIE|SESSION_?ID|DSN|SALT|SIGNATURE)/i;
/** user:password@ in an address. */
const ADDRESS = /\/\/[^/\s:@]*:[^/\s@]+@/;
/** Well-known shapes: prefixes of keys, tokens in three parts, private keys. */
const SHAPE =
  /^(sk|pk|rk|ghp|gho|ghs|glpat|xox[a-z]|AKIA|ASIA|AIza)[-_A-Za-z0-9]{8,}|^eyJ[\w-]+\.[\w-]+\.[\w-]+|-----BEGIN [A-Z ]*PRIVATE KEY/;

/** Whether a variable may hold a secret, by its name or by its value. */
export const isSecret = (name: string, value: string | null): boolean =>
  NAME.test(name) || (value !== null && (ADDRESS.test(value) || SHAPE.test(value)));

/** Dots that do not tell the length. */
export const MASK = "••••••••";

const DECLARATION = /^((?:declare|typeset|export|readonly)(?: -\S+)* ([A-Za-z_]\w*)=)(.*)$/;

/** A line of a shell's state without its value, if that may be a secret. */
export function maskLine(line: string): string {
  const found = DECLARATION.exec(line);
  if (!found) return line;
  const [, head, name, value] = found;
  return isSecret(name!, value!.replace(/^["'$]+|["']$/g, "")) ? `${head}${MASK}` : line;
}
