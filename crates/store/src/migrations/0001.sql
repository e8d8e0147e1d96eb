-- Times are microseconds since 1970 UTC. Columns named for a noun's parts hold JSON, and a reader
-- takes a missing field as its default, so that a row of an older version stays readable.

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE projects (
  project_id  TEXT PRIMARY KEY,
  prefix      TEXT NOT NULL,
  description TEXT NOT NULL DEFAULT '',
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  revision    INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE leases (
  lease_id   TEXT PRIMARY KEY,
  provider   TEXT NOT NULL,
  desired    TEXT NOT NULL,
  generation INTEGER NOT NULL,
  word       TEXT NOT NULL,
  state      TEXT NOT NULL,
  spec       TEXT NOT NULL DEFAULT 'null',
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  revision   INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX leases_by_time ON leases (created_at, lease_id);
CREATE INDEX leases_by_word ON leases (word) WHERE word NOT IN ('idle', 'destroyed');

CREATE TABLE threads (
  thread_id   TEXT PRIMARY KEY,
  project_id  TEXT NOT NULL REFERENCES projects,
  terminal_id TEXT NOT NULL UNIQUE,
  lease_id    TEXT NOT NULL REFERENCES leases,
  provider    TEXT,
  policy      TEXT NOT NULL DEFAULT '{}',
  env         TEXT NOT NULL DEFAULT '{}',
  cwd         TEXT,
  labels      TEXT NOT NULL DEFAULT '{}',
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  revision    INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX threads_by_time ON threads (created_at, thread_id);
CREATE INDEX threads_by_project ON threads (project_id, created_at, thread_id);
CREATE INDEX threads_by_lease ON threads (lease_id);

CREATE TABLE messages (
  message_id TEXT PRIMARY KEY,
  thread_id  TEXT NOT NULL REFERENCES threads ON DELETE CASCADE,
  role       TEXT NOT NULL,
  content    TEXT NOT NULL,
  at         INTEGER NOT NULL
) STRICT;
CREATE INDEX messages_by_thread ON messages (thread_id, at, message_id);

CREATE TABLE sessions (
  session_id  TEXT PRIMARY KEY,
  thread_id   TEXT NOT NULL REFERENCES threads ON DELETE CASCADE,
  terminal_id TEXT NOT NULL,
  is_open     INTEGER NOT NULL,
  state       TEXT NOT NULL,
  policy      TEXT NOT NULL DEFAULT '{}',
  created     TEXT NOT NULL,
  last_active TEXT NOT NULL,
  created_at  INTEGER NOT NULL,
  revision    INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX one_open_session ON sessions (thread_id) WHERE is_open = 1;
CREATE INDEX sessions_by_thread ON sessions (thread_id, created_at, session_id);
CREATE INDEX open_sessions ON sessions (is_open) WHERE is_open = 1;

CREATE TABLE terminals (
  terminal_id      TEXT PRIMARY KEY,
  thread_id        TEXT NOT NULL REFERENCES threads ON DELETE CASCADE,
  lease_id         TEXT NOT NULL REFERENCES leases,
  is_default       INTEGER NOT NULL,
  is_open          INTEGER NOT NULL DEFAULT 1,
  argv             TEXT NOT NULL DEFAULT '[]',
  shell            TEXT NOT NULL DEFAULT 'bash',
  cols             INTEGER NOT NULL,
  rows             INTEGER NOT NULL,
  env              TEXT NOT NULL DEFAULT '{}',
  cwd              TEXT NOT NULL DEFAULT '',
  env_delta        TEXT NOT NULL DEFAULT '{}',
  version          INTEGER NOT NULL DEFAULT 0,
  title            TEXT NOT NULL DEFAULT '',
  status           TEXT NOT NULL,
  created_at       INTEGER NOT NULL,
  updated_at       INTEGER NOT NULL,
  last_activity_at INTEGER NOT NULL,
  revision         INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX one_default_terminal ON terminals (thread_id)
  WHERE is_default = 1 AND is_open = 1;
CREATE INDEX terminals_by_thread ON terminals (thread_id, created_at, terminal_id);
CREATE INDEX terminals_by_lease ON terminals (lease_id);

CREATE TABLE blobs (
  hash     BLOB PRIMARY KEY,
  refs     INTEGER NOT NULL,
  size     INTEGER NOT NULL,
  encoding INTEGER NOT NULL,
  bytes    BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE terminal_versions (
  terminal_id TEXT NOT NULL REFERENCES terminals ON DELETE CASCADE,
  version     INTEGER NOT NULL,
  cwd         TEXT NOT NULL,
  cause       TEXT NOT NULL,
  at          INTEGER NOT NULL,
  PRIMARY KEY (terminal_id, version)
) STRICT, WITHOUT ROWID;

-- What a section is since this version; no hash means that it is no more.
CREATE TABLE terminal_sections (
  terminal_id TEXT NOT NULL REFERENCES terminals ON DELETE CASCADE,
  name        TEXT NOT NULL,
  version     INTEGER NOT NULL,
  hash        BLOB REFERENCES blobs,
  PRIMARY KEY (terminal_id, name, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE commands (
  command_id      TEXT PRIMARY KEY,
  terminal_id     TEXT NOT NULL REFERENCES terminals ON DELETE CASCADE,
  text            TEXT NOT NULL,
  source          TEXT NOT NULL,
  status          TEXT NOT NULL,
  exit_code       INTEGER,
  signal          INTEGER,
  created_at      INTEGER NOT NULL,
  started_at      INTEGER,
  finished_at     INTEGER,
  duration_us     INTEGER,
  stdout_bytes    INTEGER NOT NULL DEFAULT 0,
  stderr_bytes    INTEGER NOT NULL DEFAULT 0,
  truncated       INTEGER NOT NULL DEFAULT 0,
  version_before  INTEGER NOT NULL DEFAULT 0,
  version_after   INTEGER,
  offset_start    INTEGER,
  offset_end      INTEGER,
  cwd             TEXT,
  changes         TEXT NOT NULL DEFAULT '{}',
  shell_restarted INTEGER NOT NULL DEFAULT 0,
  idempotency_key TEXT
) STRICT;
CREATE INDEX commands_by_terminal ON commands (terminal_id, created_at, command_id);
CREATE INDEX unfinished_commands ON commands (terminal_id) WHERE status IN ('queued', 'running');

CREATE TABLE idempotency (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  key        TEXT NOT NULL UNIQUE,
  request    BLOB NOT NULL,
  subject    TEXT,
  status     INTEGER,
  headers    TEXT NOT NULL DEFAULT '[]',
  body       BLOB,
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX idempotency_by_time ON idempotency (created_at);

CREATE TABLE tokens (
  token_id   TEXT PRIMARY KEY,
  name       TEXT NOT NULL,
  hash       BLOB NOT NULL UNIQUE,
  scope      TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER
) STRICT;

CREATE TABLE ledger (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  at      INTEGER NOT NULL,
  kind    TEXT NOT NULL,
  subject TEXT NOT NULL,
  detail  TEXT NOT NULL DEFAULT '{}'
) STRICT;

INSERT INTO projects (project_id, prefix, description, created_at, updated_at)
VALUES ('default-00000000', 'default', 'threads that name no project', 0, 0);
