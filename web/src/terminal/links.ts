/** Which addresses of a terminal's text may be opened. */

/** The address in its plain form if it is http or https, else nothing: the text of a terminal is not to be trusted. */
export function webAddress(text: string): string | null {
  let address: URL;
  try {
    address = new URL(text);
  } catch {
    return null;
  }
  return address.protocol === "http:" || address.protocol === "https:" ? address.href : null;
}
