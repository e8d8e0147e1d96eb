/** The API names fields in snake_case; this SDK names them in camelCase. */

/** `Camel<"thread_id">` is `"threadId"`. */
type Camel<Name extends string> = Name extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<Camel<Tail>>}`
  : Name;

/**
 * The type of a JSON value after {@link camelKeys}. The keys of a map belong to the user, such as the names of
 * environment variables, and stay as they are.
 */
export type CamelKeys<T> = T extends readonly (infer Item)[]
  ? CamelKeys<Item>[]
  : T extends object
    ? string extends keyof T
      ? T
      : { [Name in keyof T as Name extends string ? Camel<Name> : Name]: CamelKeys<T[Name]> }
    : T;

/**
 * The fields of responses that contain a map or free-form JSON. A test compares them with the API document.
 */
export const OPAQUE_FIELDS: ReadonlySet<string> = new Set([
  "detail",
  "env",
  "env_delta",
  "labels",
  "routes",
  "sections",
  "set",
]);

/** The names of the API, renamed once. More than it has would be a mistake of the server. */
const camelNames = new Map<string, string>();
const MAX_NAMES = 2000;

function camel(name: string): string {
  let renamed = camelNames.get(name);
  if (renamed === undefined) {
    renamed = name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
    if (camelNames.size < MAX_NAMES) camelNames.set(name, renamed);
  }
  return renamed;
}

const snake = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** Renames the fields of a response. */
export function camelKeys<T>(value: T): CamelKeys<T> {
  return rename(value) as CamelKeys<T>;
}

function rename(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(rename);
  if (typeof value !== "object" || value === null) return value;
  const renamed: Record<string, unknown> = {};
  for (const name of Object.keys(value)) {
    const member: unknown = (value as Record<string, unknown>)[name];
    const plain = typeof member !== "object" || member === null || OPAQUE_FIELDS.has(name);
    renamed[camel(name)] = plain ? member : rename(member);
  }
  return renamed;
}

/** Renames the fields of a request, one level deep, and leaves out those that are undefined. */
export function snakeKeys(value: object): Record<string, unknown> {
  const renamed: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(value)) {
    if (member !== undefined) renamed[snake(name)] = member;
  }
  return renamed;
}
