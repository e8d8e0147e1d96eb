/** Errors, as classes by the `code` that the server sends. */

import type { components } from "./schema.js";
import type { ExecResult } from "./types.js";

/** The codes of the server. */
export type ServerCode = components["schemas"]["Code"];

/** One invalid field of a request. */
export interface FieldError {
  /** JSON pointer into the body; for a parameter, its name after a slash. */
  pointer: string;
  detail: string;
}

/** What an error response contains. */
export interface ErrorFields {
  code: string;
  detail: string;
  /** The HTTP status; 0 if there was no response. */
  status: number;
  requestId?: string | undefined;
  fieldErrors?: FieldError[] | undefined;
  retryAfterMs?: number | undefined;
  cause?: unknown;
}

/**
 * Any error of the server or of the connection to it.
 *
 * @example
 * ```ts
 * try {
 *   await thread.files.read("/workspace/missing");
 * } catch (error) {
 *   if (!(error instanceof NotFoundError)) throw error;
 *   console.log(error.code, error.detail); // not_found …
 * }
 * ```
 */
export class SteadError extends Error {
  /** The kind of error, for programs. */
  readonly code: string;
  /** What went wrong with this request. */
  readonly detail: string;
  /** The HTTP status; 0 if there was no response. */
  readonly status: number;
  /** The id of the request in the server's log, if the server sent one. */
  readonly requestId: string | undefined;
  /** For invalid input: every invalid field. */
  readonly fieldErrors: FieldError[];
  /** How long the server asks to wait before the request is repeated. */
  readonly retryAfterMs: number | undefined;

  constructor(fields: ErrorFields) {
    super(
      `${fields.detail} (${fields.code})`,
      fields.cause === undefined ? undefined : { cause: fields.cause },
    );
    this.name = new.target.name;
    this.code = fields.code;
    this.detail = fields.detail;
    this.status = fields.status;
    this.requestId = fields.requestId;
    this.fieldErrors = fields.fieldErrors ?? [];
    this.retryAfterMs = fields.retryAfterMs;
  }
}

/** The request is not valid. */
export class InvalidRequestError extends SteadError {}
/** The token is missing or wrong. */
export class UnauthorizedError extends SteadError {}
/** The caller may not do this. */
export class ForbiddenError extends SteadError {}
/** The resource does not exist. */
export class NotFoundError extends SteadError {}
/** The request conflicts with the current state. */
export class ConflictError extends SteadError {}
/** Another command or program is using the terminal. */
export class BusyError extends ConflictError {}
/** The resource was changed concurrently. */
export class VersionConflictError extends ConflictError {}
/** The sandbox is paused, and the request does not resume it. */
export class LeasePausedError extends ConflictError {}
/** Another client has control of the terminal. */
export class NotDriverError extends ConflictError {}
/** The provider cannot do this. */
export class NotSupportedError extends ConflictError {}
/** The command, terminal or sandbox is not running. */
export class NotRunningError extends ConflictError {}
/** No program waits for the input. */
export class NotWaitingError extends ConflictError {}
/** The terminal would show the secret. */
export class EchoOnError extends ConflictError {}
/** The server was killed during the request: check whether it took effect. */
export class OutcomeUnknownError extends ConflictError {}
/** The file already exists. */
export class AlreadyExistsError extends ConflictError {}
/** The path is of another type, or the directory is not empty. */
export class FileTypeError extends ConflictError {}
/** A quota is used up. */
export class QuotaExceededError extends ConflictError {}
/** The output or the resource is no longer kept. */
export class GoneError extends SteadError {}
/** The body is too large. */
export class TooLargeError extends SteadError {}
/** Too many requests or resources. */
export class RateLimitError extends SteadError {}
/** The server or the provider cannot answer at the moment. */
export class UnavailableError extends SteadError {}
/** The host of the sandbox does not answer. */
export class UnreachableError extends UnavailableError {}
/** The server has a bug; its log has the details. */
export class InternalError extends SteadError {}
/** The server cannot be reached, or the connection failed. `cause` is the error of the platform. */
export class ConnectionError extends SteadError {}
/** A wait of this SDK reached its `timeoutMs`. */
export class WaitTimeoutError extends SteadError {}

/** A command that was run with `check: true` did not exit with 0. */
export class CommandError extends SteadError {
  readonly result: ExecResult;

  constructor(command: string, result: ExecResult) {
    const end = result.exitCode === null ? result.status : `exit code ${result.exitCode}`;
    super({ code: "command_failed", detail: `${JSON.stringify(command)}: ${end}`, status: 0 });
    this.result = result;
  }
}

type ErrorClass = new (fields: ErrorFields) => SteadError;

/** The class of each code. The compiler refuses a code without one. */
const CLASSES: Record<ServerCode, ErrorClass> = {
  invalid_request: InvalidRequestError,
  invalid_json: InvalidRequestError,
  invalid_body: InvalidRequestError,
  invalid_query: InvalidRequestError,
  invalid_path: InvalidRequestError,
  invalid_header: InvalidRequestError,
  method_not_allowed: InvalidRequestError,
  range_not_satisfiable: InvalidRequestError,
  unsupported_media_type: InvalidRequestError,
  key_reused: InvalidRequestError,
  unprocessable: InvalidRequestError,
  unauthorized: UnauthorizedError,
  host_not_allowed: ForbiddenError,
  origin_not_allowed: ForbiddenError,
  forbidden: ForbiddenError,
  outside_route: ForbiddenError,
  not_found: NotFoundError,
  no_such_route: NotFoundError,
  conflict: ConflictError,
  in_flight: ConflictError,
  busy: BusyError,
  version_conflict: VersionConflictError,
  lease_paused: LeasePausedError,
  not_driver: NotDriverError,
  not_supported: NotSupportedError,
  not_running: NotRunningError,
  not_waiting: NotWaitingError,
  echo_on: EchoOnError,
  outcome_unknown: OutcomeUnknownError,
  already_exists: AlreadyExistsError,
  not_a_file: FileTypeError,
  is_a_directory: FileTypeError,
  not_a_directory: FileTypeError,
  not_empty: FileTypeError,
  quota_exceeded: QuotaExceededError,
  gone: GoneError,
  body_too_large: TooLargeError,
  too_many_terminals: RateLimitError,
  too_many_requests: RateLimitError,
  too_many_failures: RateLimitError,
  body_timeout: UnavailableError,
  overloaded: UnavailableError,
  stopping: UnavailableError,
  store_unavailable: UnavailableError,
  provider_unavailable: UnavailableError,
  out_of_terminals: UnavailableError,
  out_of_descriptors: UnavailableError,
  out_of_processes: UnavailableError,
  out_of_memory: UnavailableError,
  out_of_watches: UnavailableError,
  disk_full: UnavailableError,
  port_closed: UnavailableError,
  port_timeout: UnavailableError,
  unreachable: UnreachableError,
  internal: InternalError,
  store_damaged: InternalError,
};

/** Creates the error of a code. A code that this version does not know gives a plain {@link SteadError}. */
export function serverError(fields: ErrorFields): SteadError {
  const known: Record<string, ErrorClass> = CLASSES;
  const Class = Object.hasOwn(known, fields.code) ? known[fields.code] : undefined;
  return new (Class ?? SteadError)(fields);
}

/** Reads the error of a response. */
export async function responseError(response: Response): Promise<SteadError> {
  let body: Record<string, unknown> = {};
  try {
    const parsed: unknown = await response.json();
    if (typeof parsed === "object" && parsed !== null) body = parsed as Record<string, unknown>;
  } catch {
    // A proxy answered, or the body was cut off: the status says enough.
  }
  const text = (name: string): string | undefined =>
    typeof body[name] === "string" ? (body[name] as string) : undefined;
  const seconds = Number(response.headers.get("retry-after") ?? Number.NaN);
  return serverError({
    code: text("code") ?? "unknown",
    detail: text("detail") ?? `the server answered ${response.status}`,
    status: response.status,
    requestId: response.headers.get("x-request-id") ?? undefined,
    fieldErrors: Array.isArray(body.errors) ? (body.errors as FieldError[]) : undefined,
    retryAfterMs: Number.isFinite(seconds) ? seconds * 1000 : undefined,
  });
}
