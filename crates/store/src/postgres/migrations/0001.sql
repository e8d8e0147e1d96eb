-- The resources as in SQLite (../../migrations), where the columns are described. Numbers and truth values are BIGINT, and
-- text is ordered by its bytes, so that one statement means the same in both.

-- What SQLite calls by these names.
CREATE FUNCTION max(a BIGINT, b BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE WHEN a IS NULL OR b IS NULL THEN NULL ELSE greatest(a, b) END;
CREATE FUNCTION min(a BIGINT, b BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE WHEN a IS NULL OR b IS NULL THEN NULL ELSE least(a, b) END;
CREATE FUNCTION json_extract(document TEXT, path TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN document::json #>> string_to_array(substr(path, 3), '.');
CREATE FUNCTION json_remove(document TEXT, path TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN (document::jsonb #- string_to_array(substr(path, 3), '.'))::text;
-- A document with an escaped NUL, which a text of PostgreSQL cannot contain, has no elements.
CREATE FUNCTION json_each(document TEXT) RETURNS TABLE (key TEXT, value TEXT) LANGUAGE sql IMMUTABLE AS $$
  WITH parsed AS (
    SELECT CASE WHEN position('\u0000' IN document) > 0 THEN '{}'::json ELSE document::json END AS it)
  SELECT (number - 1)::text, element
  FROM parsed, json_array_elements_text(CASE json_typeof(it) WHEN 'array' THEN it ELSE '[]' END)
    WITH ORDINALITY AS elements (element, number)
  UNION ALL
  SELECT pair.key, pair.value
  FROM parsed, json_each_text(CASE json_typeof(it) WHEN 'object' THEN it ELSE '{}' END) AS pair
$$;

CREATE TABLE meta (
  key   TEXT COLLATE "C" PRIMARY KEY,
  value TEXT COLLATE "C" NOT NULL
);

-- The number of the last commit of each open connection. A commit whose answer was lost is looked up here.
CREATE TABLE connections (
  connection_id TEXT COLLATE "C" PRIMARY KEY,
  commits       BIGINT NOT NULL,
  is_given_up   BOOLEAN NOT NULL DEFAULT false,
  used_at       TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 50);
CREATE FUNCTION mark_commit(id TEXT, number BIGINT) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
  UPDATE connections SET commits = number, used_at = now() WHERE connection_id = id AND NOT is_given_up;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the connection was given up' USING ERRCODE = '08003';
  END IF;
END $$;

CREATE TABLE projects (
  project_id       TEXT COLLATE "C" PRIMARY KEY,
  prefix           TEXT COLLATE "C" NOT NULL,
  description      TEXT COLLATE "C" NOT NULL DEFAULT '',
  created_at       BIGINT NOT NULL,
  updated_at       BIGINT NOT NULL,
  revision         BIGINT NOT NULL DEFAULT 0,
  tags             TEXT COLLATE "C" NOT NULL DEFAULT '[]',
  config           TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  pinned           BIGINT NOT NULL DEFAULT 0,
  keep_until       BIGINT,
  warned_at        BIGINT,
  reminded_at      BIGINT,
  last_used_at     BIGINT NOT NULL DEFAULT 0,
  sessions         BIGINT NOT NULL DEFAULT 0,
  commands         BIGINT NOT NULL DEFAULT 0,
  output_bytes     BIGINT NOT NULL DEFAULT 0,
  entries_revision BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX projects_by_time ON projects (created_at, project_id);

-- Changes of the statistics that are not in the row of the project yet. Transactions that use the same project append
-- here instead of changing the same row.
CREATE TABLE project_activity (
  project_id   TEXT COLLATE "C" NOT NULL,
  sessions     BIGINT NOT NULL,
  commands     BIGINT NOT NULL,
  output_bytes BIGINT NOT NULL,
  used_at      BIGINT
);
CREATE INDEX project_activity_by_project ON project_activity (project_id);
CREATE VIEW current_projects AS
  SELECT p.project_id, p.prefix, p.description, p.created_at, p.updated_at, p.revision, p.tags, p.config, p.pinned,
         p.keep_until, CASE WHEN a.used_at IS NULL THEN p.warned_at END AS warned_at, p.reminded_at,
         greatest(p.last_used_at, a.used_at) AS last_used_at,
         p.sessions + coalesce(a.sessions, 0) AS sessions,
         p.commands + coalesce(a.commands, 0) AS commands,
         greatest(0, p.output_bytes + coalesce(a.output_bytes, 0)) AS output_bytes,
         p.entries_revision
  FROM projects p LEFT JOIN LATERAL (
    SELECT sum(sessions)::bigint AS sessions, sum(commands)::bigint AS commands,
           sum(output_bytes)::bigint AS output_bytes, max(used_at) AS used_at
    FROM project_activity WHERE project_activity.project_id = p.project_id) AS a ON true;
-- Moves the changes of one project, or of all, into their rows.
CREATE FUNCTION fold_activity(id TEXT) RETURNS VOID LANGUAGE sql AS $$
  WITH gone AS (
    DELETE FROM project_activity WHERE id IS NULL OR project_id = id RETURNING *),
  sums AS (
    SELECT project_id, sum(sessions)::bigint AS sessions, sum(commands)::bigint AS commands,
           sum(output_bytes)::bigint AS output_bytes, max(used_at) AS used_at
    FROM gone GROUP BY project_id)
  UPDATE projects p
  SET sessions = p.sessions + sums.sessions, commands = p.commands + sums.commands,
      output_bytes = greatest(0, p.output_bytes + sums.output_bytes),
      last_used_at = greatest(p.last_used_at, sums.used_at),
      warned_at = CASE WHEN sums.used_at IS NULL THEN p.warned_at END
  FROM sums WHERE sums.project_id = p.project_id
$$;

CREATE TABLE leases (
  lease_id     TEXT COLLATE "C" PRIMARY KEY,
  provider     TEXT COLLATE "C" NOT NULL,
  desired      TEXT COLLATE "C" NOT NULL,
  generation   BIGINT NOT NULL,
  word         TEXT COLLATE "C" NOT NULL,
  state        TEXT COLLATE "C" NOT NULL,
  spec         TEXT COLLATE "C" NOT NULL DEFAULT 'null',
  created_at   BIGINT NOT NULL,
  updated_at   BIGINT NOT NULL,
  revision     BIGINT NOT NULL DEFAULT 0,
  ran_us       BIGINT NOT NULL DEFAULT 0,
  counted_from BIGINT
);
CREATE INDEX leases_by_time ON leases (created_at, lease_id);
CREATE INDEX leases_by_word ON leases (word) WHERE word NOT IN ('idle', 'destroyed');

CREATE TABLE threads (
  thread_id   TEXT COLLATE "C" PRIMARY KEY,
  project_id  TEXT COLLATE "C" NOT NULL REFERENCES projects,
  terminal_id TEXT COLLATE "C" NOT NULL UNIQUE,
  lease_id    TEXT COLLATE "C" NOT NULL REFERENCES leases,
  provider    TEXT COLLATE "C",
  policy      TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  env         TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  cwd         TEXT COLLATE "C",
  labels      TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  created_at  BIGINT NOT NULL,
  updated_at  BIGINT NOT NULL,
  revision    BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX threads_by_time ON threads (created_at, thread_id);
CREATE INDEX threads_by_project ON threads (project_id, created_at, thread_id);
CREATE INDEX threads_by_lease ON threads (lease_id);

CREATE TABLE messages (
  message_id TEXT COLLATE "C" PRIMARY KEY,
  thread_id  TEXT COLLATE "C" NOT NULL REFERENCES threads ON DELETE CASCADE,
  role       TEXT COLLATE "C" NOT NULL,
  content    TEXT COLLATE "C" NOT NULL,
  at         BIGINT NOT NULL
);
CREATE INDEX messages_by_thread ON messages (thread_id, at, message_id);

CREATE TABLE sessions (
  session_id    TEXT COLLATE "C" PRIMARY KEY,
  thread_id     TEXT COLLATE "C" NOT NULL REFERENCES threads ON DELETE CASCADE,
  terminal_id   TEXT COLLATE "C" NOT NULL,
  is_open       BIGINT NOT NULL,
  state         TEXT COLLATE "C" NOT NULL,
  policy        TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  created       TEXT COLLATE "C" NOT NULL,
  last_active   TEXT COLLATE "C" NOT NULL,
  created_at    BIGINT NOT NULL,
  revision      BIGINT NOT NULL DEFAULT 0,
  ran_before_us BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX one_open_session ON sessions (thread_id) WHERE is_open = 1;
CREATE INDEX sessions_by_thread ON sessions (thread_id, created_at, session_id);
CREATE INDEX sessions_by_time ON sessions (created_at, session_id);
CREATE INDEX open_sessions ON sessions (is_open) WHERE is_open = 1;

CREATE TABLE terminals (
  terminal_id      TEXT COLLATE "C" PRIMARY KEY,
  thread_id        TEXT COLLATE "C" NOT NULL REFERENCES threads ON DELETE CASCADE,
  lease_id         TEXT COLLATE "C" NOT NULL REFERENCES leases,
  is_default       BIGINT NOT NULL,
  is_open          BIGINT NOT NULL DEFAULT 1,
  argv             TEXT COLLATE "C" NOT NULL DEFAULT '[]',
  shell            TEXT COLLATE "C" NOT NULL DEFAULT 'bash',
  cols             BIGINT NOT NULL,
  rows             BIGINT NOT NULL,
  env              TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  cwd              TEXT COLLATE "C" NOT NULL DEFAULT '',
  env_delta        TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  version          BIGINT NOT NULL DEFAULT 0,
  title            TEXT COLLATE "C" NOT NULL DEFAULT '',
  status           TEXT COLLATE "C" NOT NULL,
  created_at       BIGINT NOT NULL,
  updated_at       BIGINT NOT NULL,
  last_activity_at BIGINT NOT NULL,
  revision         BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX one_default_terminal ON terminals (thread_id) WHERE is_default = 1 AND is_open = 1;
CREATE INDEX terminals_by_thread ON terminals (thread_id, created_at, terminal_id);
CREATE INDEX terminals_by_lease ON terminals (lease_id);

CREATE TABLE blobs (
  hash     BYTEA PRIMARY KEY,
  refs     BIGINT NOT NULL,
  size     BIGINT NOT NULL,
  encoding BIGINT NOT NULL,
  bytes    BYTEA NOT NULL
);

CREATE TABLE terminal_versions (
  terminal_id TEXT COLLATE "C" NOT NULL REFERENCES terminals ON DELETE CASCADE,
  version     BIGINT NOT NULL,
  cwd         TEXT COLLATE "C" NOT NULL,
  cause       TEXT COLLATE "C" NOT NULL,
  at          BIGINT NOT NULL,
  PRIMARY KEY (terminal_id, version)
);

CREATE TABLE terminal_sections (
  terminal_id TEXT COLLATE "C" NOT NULL REFERENCES terminals ON DELETE CASCADE,
  name        TEXT COLLATE "C" NOT NULL,
  version     BIGINT NOT NULL,
  hash        BYTEA,
  PRIMARY KEY (terminal_id, name, version)
);

CREATE TABLE commands (
  command_id      TEXT COLLATE "C" PRIMARY KEY,
  terminal_id     TEXT COLLATE "C" NOT NULL REFERENCES terminals ON DELETE CASCADE,
  text            TEXT COLLATE "C" NOT NULL,
  source          TEXT COLLATE "C" NOT NULL,
  status          TEXT COLLATE "C" NOT NULL,
  exit_code       BIGINT,
  signal          BIGINT,
  created_at      BIGINT NOT NULL,
  started_at      BIGINT,
  finished_at     BIGINT,
  duration_us     BIGINT,
  stdout_bytes    BIGINT NOT NULL DEFAULT 0,
  stderr_bytes    BIGINT NOT NULL DEFAULT 0,
  truncated       BIGINT NOT NULL DEFAULT 0,
  version_before  BIGINT NOT NULL DEFAULT 0,
  version_after   BIGINT,
  offset_start    BIGINT,
  offset_end      BIGINT,
  cwd             TEXT COLLATE "C",
  changes         TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  shell_restarted BIGINT NOT NULL DEFAULT 0,
  idempotency_key TEXT COLLATE "C",
  limit_reached   TEXT COLLATE "C"
);
CREATE INDEX commands_by_terminal ON commands (terminal_id, created_at, command_id);
CREATE INDEX unfinished_commands ON commands (terminal_id) WHERE status IN ('queued', 'running');

CREATE TABLE command_output (
  command_id TEXT COLLATE "C" PRIMARY KEY REFERENCES commands ON DELETE CASCADE,
  stdout     BYTEA NOT NULL,
  stderr     BYTEA NOT NULL
);

CREATE TABLE idempotency (
  id         BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  key        TEXT COLLATE "C" NOT NULL UNIQUE,
  request    BYTEA NOT NULL,
  subject    TEXT COLLATE "C",
  status     BIGINT,
  headers    TEXT COLLATE "C" NOT NULL DEFAULT '[]',
  body       BYTEA,
  created_at BIGINT NOT NULL,
  caller     TEXT COLLATE "C" NOT NULL DEFAULT ''
);
CREATE INDEX idempotency_by_time ON idempotency (created_at);
CREATE INDEX idempotency_by_caller ON idempotency (caller, id);
CREATE INDEX idempotency_answered ON idempotency (caller, id) WHERE status IS NOT NULL;

-- Changes of the bytes that are kept for a caller; the sum counts. Appended for the same reason as above.
CREATE TABLE idempotency_bytes (
  caller TEXT COLLATE "C" NOT NULL,
  bytes  BIGINT NOT NULL
);
CREATE INDEX idempotency_bytes_by_caller ON idempotency_bytes (caller);
CREATE FUNCTION fold_idempotency_bytes() RETURNS VOID LANGUAGE sql AS $$
  WITH gone AS (DELETE FROM idempotency_bytes RETURNING *)
  INSERT INTO idempotency_bytes (caller, bytes)
    SELECT caller, sum(bytes)::bigint FROM gone GROUP BY caller HAVING sum(bytes) <> 0
$$;

CREATE TABLE tokens (
  token_id   TEXT COLLATE "C" PRIMARY KEY,
  name       TEXT COLLATE "C" NOT NULL,
  hash       BYTEA NOT NULL UNIQUE,
  scope      TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT,
  revoked_at BIGINT
);

CREATE TABLE ledger (
  id      BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  at      BIGINT NOT NULL,
  kind    TEXT COLLATE "C" NOT NULL,
  subject TEXT COLLATE "C" NOT NULL,
  detail  TEXT COLLATE "C" NOT NULL DEFAULT '{}'
);

CREATE TABLE session_records (
  session_id  TEXT COLLATE "C" PRIMARY KEY,
  project_id  TEXT COLLATE "C" NOT NULL REFERENCES projects ON DELETE CASCADE,
  thread_id   TEXT COLLATE "C" NOT NULL,
  state       TEXT COLLATE "C" NOT NULL,
  created     TEXT COLLATE "C" NOT NULL,
  last_active TEXT COLLATE "C" NOT NULL,
  created_at  BIGINT NOT NULL
);
CREATE INDEX session_records_by_project ON session_records (project_id, created_at, session_id);

CREATE TABLE trash (
  project_id  TEXT COLLATE "C" PRIMARY KEY,
  description TEXT COLLATE "C" NOT NULL,
  deleted_at  BIGINT NOT NULL,
  reason      TEXT COLLATE "C" NOT NULL,
  rows        BYTEA NOT NULL
);

CREATE TABLE project_entries (
  project_id   TEXT COLLATE "C" NOT NULL REFERENCES projects ON DELETE CASCADE,
  path         TEXT COLLATE "C" NOT NULL,
  is_directory BIGINT NOT NULL,
  bytes        BYTEA NOT NULL,
  modified_at  BIGINT NOT NULL,
  version      BIGINT NOT NULL,
  PRIMARY KEY (project_id, path)
);

CREATE TABLE shares (
  share_id    TEXT COLLATE "C" PRIMARY KEY,
  terminal_id TEXT COLLATE "C" NOT NULL REFERENCES terminals ON DELETE CASCADE,
  name        TEXT COLLATE "C" NOT NULL,
  hash        BYTEA NOT NULL UNIQUE,
  created_at  BIGINT NOT NULL,
  expires_at  BIGINT NOT NULL,
  revoked_at  BIGINT,
  created     TEXT COLLATE "C"
);
CREATE INDEX shares_by_terminal ON shares (terminal_id, created_at, share_id);
CREATE INDEX shares_by_time ON shares (created_at, share_id);

CREATE TABLE templates (
  template_id TEXT COLLATE "C" PRIMARY KEY,
  owner       TEXT COLLATE "C" NOT NULL,
  name        TEXT COLLATE "C" NOT NULL,
  body        TEXT COLLATE "C" NOT NULL,
  UNIQUE (owner, name)
);

CREATE TABLE sandboxes (
  thread_id            TEXT COLLATE "C" PRIMARY KEY REFERENCES threads ON DELETE CASCADE,
  project_id           TEXT COLLATE "C" NOT NULL REFERENCES projects,
  name                 TEXT COLLATE "C",
  origin               TEXT COLLATE "C" NOT NULL,
  template             TEXT COLLATE "C" NOT NULL,
  build_id             TEXT COLLATE "C",
  "user"               TEXT COLLATE "C" NOT NULL,
  home                 TEXT COLLATE "C" NOT NULL,
  state                TEXT COLLATE "C" NOT NULL,
  started_at           BIGINT NOT NULL,
  expires_at           BIGINT,
  on_expiry            TEXT COLLATE "C" NOT NULL,
  expires_while_paused BIGINT NOT NULL,
  delete_after_stop_s  BIGINT,
  auto_resume          BIGINT NOT NULL,
  port_access          TEXT COLLATE "C" NOT NULL,
  labels               TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  extra                TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  created_at           BIGINT NOT NULL,
  updated_at           BIGINT NOT NULL,
  revision             BIGINT NOT NULL DEFAULT 0,
  lifetime_s           BIGINT
);
CREATE UNIQUE INDEX sandboxes_by_name ON sandboxes (project_id, origin, name) WHERE name IS NOT NULL;
CREATE INDEX sandboxes_by_time ON sandboxes (started_at, thread_id);
CREATE INDEX sandboxes_by_expiry ON sandboxes (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX sandboxes_by_project ON sandboxes (project_id);

CREATE TABLE removals (
  number    BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  noun      TEXT COLLATE "C" NOT NULL,
  id        TEXT COLLATE "C" NOT NULL,
  terminals TEXT COLLATE "C" NOT NULL,
  leases    TEXT COLLATE "C" NOT NULL
);

CREATE TABLE handoffs (
  handoff_id  TEXT COLLATE "C" PRIMARY KEY,
  terminal_id TEXT COLLATE "C" NOT NULL REFERENCES terminals ON DELETE CASCADE,
  thread_id   TEXT COLLATE "C" NOT NULL,
  kind        TEXT COLLATE "C" NOT NULL,
  reason      TEXT COLLATE "C" NOT NULL,
  options     TEXT COLLATE "C" NOT NULL,
  word        TEXT COLLATE "C" NOT NULL,
  state       TEXT COLLATE "C" NOT NULL,
  created     TEXT COLLATE "C" NOT NULL,
  timeout_us  BIGINT NOT NULL,
  notice      TEXT COLLATE "C" NOT NULL,
  created_at  BIGINT NOT NULL,
  revision    BIGINT NOT NULL
);
CREATE INDEX handoffs_by_time ON handoffs (created_at, handoff_id);
CREATE INDEX handoffs_by_terminal ON handoffs (terminal_id, created_at, handoff_id);
CREATE INDEX handoffs_open ON handoffs (created_at, handoff_id) WHERE word = 'open';

-- The database itself keeps statistics and records, in the transaction of what they count.
CREATE FUNCTION session_opened() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO project_activity (project_id, sessions, commands, output_bytes, used_at)
    SELECT project_id, 1, 0, 0, NEW.created_at FROM threads WHERE thread_id = NEW.thread_id;
  RETURN NULL;
END $$;
CREATE TRIGGER session_opened AFTER INSERT ON sessions FOR EACH ROW EXECUTE FUNCTION session_opened();

CREATE FUNCTION session_used() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO project_activity (project_id, sessions, commands, output_bytes, used_at)
    SELECT project_id, 0, 0, 0,
           coalesce((extract(epoch FROM (NEW.last_active::json ->> 'at')::timestamptz) * 1000000)::bigint, 0)
    FROM threads WHERE thread_id = NEW.thread_id;
  RETURN NULL;
END $$;
CREATE TRIGGER session_used AFTER UPDATE OF last_active ON sessions FOR EACH ROW
  WHEN (NEW.last_active <> OLD.last_active) EXECUTE FUNCTION session_used();

CREATE FUNCTION command_begun() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO project_activity (project_id, sessions, commands, output_bytes, used_at)
    SELECT project_id, 0, 1, NEW.stdout_bytes + NEW.stderr_bytes, NEW.created_at
    FROM threads JOIN terminals USING (thread_id) WHERE terminals.terminal_id = NEW.terminal_id;
  UPDATE threads
    SET updated_at = greatest(updated_at, coalesce(NEW.finished_at, NEW.started_at, NEW.created_at))
    WHERE thread_id = (SELECT thread_id FROM terminals WHERE terminal_id = NEW.terminal_id);
  RETURN NULL;
END $$;
CREATE TRIGGER command_begun AFTER INSERT ON commands FOR EACH ROW EXECUTE FUNCTION command_begun();

CREATE FUNCTION command_changed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  written BIGINT := NEW.stdout_bytes + NEW.stderr_bytes - OLD.stdout_bytes - OLD.stderr_bytes;
BEGIN
  IF written <> 0 THEN
    INSERT INTO project_activity (project_id, sessions, commands, output_bytes)
      SELECT project_id, 0, 0, written
      FROM threads JOIN terminals USING (thread_id) WHERE terminals.terminal_id = NEW.terminal_id;
  END IF;
  IF NEW.started_at IS DISTINCT FROM OLD.started_at OR NEW.finished_at IS DISTINCT FROM OLD.finished_at THEN
    UPDATE threads
      SET updated_at = greatest(updated_at, coalesce(NEW.finished_at, NEW.started_at, NEW.created_at))
      WHERE thread_id = (SELECT thread_id FROM terminals WHERE terminal_id = NEW.terminal_id);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER command_changed AFTER UPDATE ON commands FOR EACH ROW EXECUTE FUNCTION command_changed();

CREATE FUNCTION thread_gone() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO session_records (session_id, project_id, thread_id, state, created, last_active, created_at)
    SELECT session_id, OLD.project_id, thread_id, state, created, last_active, created_at
    FROM sessions WHERE thread_id = OLD.thread_id
    ON CONFLICT (session_id) DO UPDATE SET state = excluded.state, last_active = excluded.last_active;
  RETURN OLD;
END $$;
CREATE TRIGGER thread_gone BEFORE DELETE ON threads FOR EACH ROW EXECUTE FUNCTION thread_gone();

CREATE FUNCTION session_gone() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO session_records (session_id, project_id, thread_id, state, created, last_active, created_at)
    SELECT OLD.session_id, project_id, OLD.thread_id, OLD.state, OLD.created, OLD.last_active, OLD.created_at
    FROM threads WHERE thread_id = OLD.thread_id
    ON CONFLICT (session_id) DO UPDATE SET state = excluded.state, last_active = excluded.last_active;
  RETURN OLD;
END $$;
CREATE TRIGGER session_gone BEFORE DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION session_gone();

CREATE FUNCTION idempotency_answered() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO idempotency_bytes (caller, bytes) VALUES (NEW.caller,
    CASE WHEN NEW.status IS NULL THEN 0 ELSE length(NEW.headers) + coalesce(length(NEW.body), 0) END
      - CASE WHEN OLD.status IS NULL THEN 0 ELSE length(OLD.headers) + coalesce(length(OLD.body), 0) END);
  RETURN NULL;
END $$;
CREATE TRIGGER idempotency_answered AFTER UPDATE OF status ON idempotency
  FOR EACH ROW EXECUTE FUNCTION idempotency_answered();

CREATE FUNCTION idempotency_removed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO idempotency_bytes (caller, bytes)
    VALUES (OLD.caller, -length(OLD.headers) - coalesce(length(OLD.body), 0));
  RETURN NULL;
END $$;
CREATE TRIGGER idempotency_removed AFTER DELETE ON idempotency
  FOR EACH ROW WHEN (OLD.status IS NOT NULL) EXECUTE FUNCTION idempotency_removed();

INSERT INTO projects (project_id, prefix, description, created_at, updated_at)
VALUES ('default-00000000', 'default', 'threads that name no project', 0, 0);
