/** Decides which links in a terminal may be opened. */

/** Normalizes an http or https address; null for any other, because terminal text is not trusted. */
export function webAddress(text: string): string | null {
  let address: URL;
  try {
    address = new URL(text);
  } catch {
    return null;
  }
  return address.protocol === "http:" || address.protocol === "https:" ? address.href : null;
}
