/** Bytes, text and base64, with nothing but web standards. */

const encoder = new TextEncoder();

export const encodeText = (text: string): Uint8Array<ArrayBuffer> => encoder.encode(text);

export const decodeText = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

export function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index++) bytes[index] = binary.charCodeAt(index);
  return bytes;
}

/** Arguments of one `String.fromCharCode` call. */
const MAX_ARGUMENTS = 8192;

export function encodeBase64(bytes: Uint8Array): string {
  let binary = "";
  for (let start = 0; start < bytes.length; start += MAX_ARGUMENTS) {
    binary += String.fromCharCode(...bytes.subarray(start, start + MAX_ARGUMENTS));
  }
  return btoa(binary);
}

/** Text as `data`, bytes as `data_base64`. */
export function inputFields(data: string | Uint8Array): { data: string } | { data_base64: string } {
  return typeof data === "string" ? { data } : { data_base64: encodeBase64(data) };
}

export function concatBytes(chunks: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(chunks.reduce((length, chunk) => length + chunk.length, 0));
  let offset = 0;
  for (const chunk of chunks) {
    whole.set(chunk, offset);
    offset += chunk.length;
  }
  return whole;
}

/** A random id for idempotency keys and write ids. */
export function randomId(): string {
  // Only browsers lack it, outside of a secure context. Node makes many at once, which saves a system call each time.
  if (crypto.randomUUID !== undefined) return crypto.randomUUID().replaceAll("-", "");
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
