/** The parts of the server's JSON that the app reads. */

export type SessionStatus = "active" | "idle" | "expired" | "closed";
export type InstanceState = "running" | "paused" | "dead" | string;

/** The compute of a thread. */
export interface ThreadSandbox {
  type: string;
  status: string;
  session_id?: string | null;
  terminal_id?: string | null;
  lease_id?: string | null;
}

export interface Message {
  message_id?: string;
  role: string;
  content: unknown;
  at?: string;
}

/** A command that a terminal runs or will run next, or its latest one. */
export interface LastCommand {
  command_id: string;
  terminal_id: string;
  /** Long texts are truncated. */
  command: string;
  status: string;
  exit_code: number | null;
  /** Whether it is queued or running. */
  running: boolean;
  started_at: string | null;
  finished_at: string | null;
  waiting_for_input: boolean;
}

export interface Thread {
  thread_id: string;
  project_id: string | null;
  /** Only in lists. */
  terminal_id?: string;
  messages?: Message[];
  sandbox?: ThreadSandbox | null;
  lease_id?: string;
  provider?: string | null;
  labels?: Record<string, string>;
  /** The first of the current commands, or else the latest command of its terminals. */
  last_command?: LastCommand | null;
  /** One for each terminal that runs a command or has queued one; first those that wait for input. */
  current_commands?: LastCommand[];
  clients?: number;
  driver?: string | null;
  created_at: string;
  updated_at: string;
}

export interface Session {
  thread_id: string;
  session_id: string;
  terminal_id: string;
  status: SessionStatus;
  created_at: string;
  last_active_at: string;
  expires_at: string;
  policy: { idle_timeout_s: number; max_duration_s: number; on_expiry?: string };
}

export interface Terminal {
  terminal_id: string;
  thread_id: string;
  lease_id: string;
  cwd: string;
  env_delta: Record<string, string | null>;
  version: number;
  status?: string;
  title?: string;
  cols?: number;
  rows?: number;
  clients?: number;
  driver?: string | null;
  exit_code?: number | null;
  is_default?: boolean;
  shell?: string;
  cmd?: string[];
  created_at: string;
  updated_at: string;
  last_activity_at?: string;
}

export interface InstanceMetrics {
  /** Since the start, in microseconds. */
  cpu_us?: number | null;
  memory_bytes?: number | null;
  processes?: number | null;
  disk_bytes?: number | null;
  /** Null where nothing is limited. */
  limits?: { memory_bytes: number; milli_cpus: number; processes: number; disk_bytes?: number } | null;
  /** How often a limit was reached. */
  exceeded?: { out_of_memory: number; processes: number } | null;
}

export interface Instance {
  instance_id: string;
  state: InstanceState;
  started_at: string | null;
  metrics?: InstanceMetrics | null;
}

export interface Lease {
  thread_id?: string;
  lease_id: string;
  provider_name: string;
  instance: Instance | null;
  generation?: number;
  shared_by?: string[];
  created_at: string;
  updated_at: string;
}

export interface Provider {
  name: string;
  available?: boolean;
  default?: boolean;
  /** What has to be installed or configured first. */
  missing?: string[];
  capabilities?: Record<string, unknown>;
}

export interface Changes {
  cwd?: { from: string | null; to: string | null } | null;
  env?: { set?: Record<string, string>; unset?: string[] } | null;
  [name: string]: unknown;
}

export interface Command {
  command_id: string;
  terminal_id: string;
  thread_id?: string;
  command: string;
  source?: string;
  status: string;
  exit_code: number | null;
  signal: number | string | null;
  timed_out?: boolean;
  stdout?: string;
  stderr?: string;
  stdout_base64?: string;
  stderr_base64?: string;
  stdout_bytes: number;
  stderr_bytes: number;
  truncated?: boolean;
  duration_ms: number | null;
  shell_restarted?: boolean;
  /** The limit of the sandbox that the command reached. */
  limit_reached?: string | null;
  waiting_for_input?: boolean;
  version?: number | null;
  cwd?: string | null;
  changes?: Changes | null;
  offset_start?: number | null;
  offset_end?: number | null;
  created_at?: string;
  /** Only known of the command that runs. */
  started_at?: string;
  finished_at?: string | null;
}

export interface Version {
  version: number;
  at: string;
  cwd: string;
  cause?: unknown;
  /** The sections that differ from the version before. */
  changed?: string[];
}

/** One version with its whole state. */
export interface WholeVersion {
  version: number;
  cwd: string;
  env: Record<string, string>;
  sections: Record<string, string>;
}

/** A link that shows one terminal. */
export interface Share {
  share_id: string;
  terminal_id: string;
  name: string;
  status: "active" | "expired" | "revoked";
  created_at: string;
  expires_at: string;
  revoked_at: string | null;
  /** Only in the response that created it. */
  url?: string;
}

export interface Project {
  project_id: string;
  prefix: string;
  description: string;
  tags: string[];
  pinned: boolean;
  /** When it is deleted if it is not used; never if null. */
  deletes_at: string | null;
  warned_at: string | null;
  statistics: {
    sessions: number;
    commands: number;
    /** Bytes of output. */
    bytes: number;
    disk_bytes?: number;
    last_access: string;
  };
  created_at: string;
  updated_at: string;
}

/** An agent's request to a person, on one terminal. */
export interface Handoff {
  handoff_id: string;
  thread_id: string;
  terminal_id: string;
  kind: "input" | "secret" | "approval";
  reason: string;
  options: string[];
  status: "open" | "answered" | "declined" | "expired";
  answer?: { approve?: boolean | null; option?: string | null; text?: string | null } | null;
  created_at: string;
  expires_at: string;
  /** When it was answered, declined or expired. */
  settled_at: string | null;
}

/** A file, directory or link of a thread. */
export interface FileEntry {
  path: string;
  name: string;
  type: "file" | "directory" | "link" | "other";
  size: number;
  modified_at: string | null;
  mode: string | null;
  /** Where a link points to. */
  target: string | null;
  /** Changes with each write. */
  etag: string | null;
}

/** A sandbox that a client created by itself. */
export interface Sandbox {
  sandbox_id: string;
  name: string | null;
  project_id: string;
  thread_id: string;
  lease_id: string;
  provider: string;
  /** `running`, `paused`, `suspended`, `stopped` or `archived`. */
  state: string;
  /** The API it was created through: `stead`, `e2b` or `daytona`. */
  origin: string;
  /** The image or snapshot it started from; empty for the default. */
  template: string;
  labels: Record<string, string>;
  on_timeout: string;
  /** End of its lifetime; null if it is unlimited. */
  expires_at: string | null;
  last_active_at: string | null;
  created_at: string;
}
