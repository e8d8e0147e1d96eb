-- Projects in full: policy, pin, tags, statistics, the trash, and files kept as rows.

ALTER TABLE projects ADD COLUMN tags         TEXT NOT NULL DEFAULT '[]';
ALTER TABLE projects ADD COLUMN config       TEXT NOT NULL DEFAULT '{}';
ALTER TABLE projects ADD COLUMN pinned       INTEGER NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN keep_until   INTEGER;
ALTER TABLE projects ADD COLUMN warned_at    INTEGER;
ALTER TABLE projects ADD COLUMN reminded_at  INTEGER;
ALTER TABLE projects ADD COLUMN last_used_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN sessions     INTEGER NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN commands     INTEGER NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN output_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN entries_revision INTEGER NOT NULL DEFAULT 0;
CREATE INDEX projects_by_time ON projects (created_at, project_id);

UPDATE projects SET
  last_used_at = max(created_at, coalesce(
    (SELECT max(updated_at) FROM threads WHERE threads.project_id = projects.project_id), 0)),
  sessions = (SELECT count(*) FROM sessions JOIN threads USING (thread_id)
              WHERE threads.project_id = projects.project_id),
  commands = (SELECT count(*) FROM commands JOIN terminals USING (terminal_id)
              JOIN threads USING (thread_id) WHERE threads.project_id = projects.project_id);

-- Sessions of threads that are gone.
CREATE TABLE session_records (
  session_id  TEXT PRIMARY KEY,
  project_id  TEXT NOT NULL REFERENCES projects ON DELETE CASCADE,
  thread_id   TEXT NOT NULL,
  state       TEXT NOT NULL,
  created     TEXT NOT NULL,
  last_active TEXT NOT NULL,
  created_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX session_records_by_project ON session_records (project_id, created_at, session_id);

-- Deleted projects; rows is what brings them back.
CREATE TABLE trash (
  project_id  TEXT PRIMARY KEY,
  description TEXT NOT NULL,
  deleted_at  INTEGER NOT NULL,
  reason      TEXT NOT NULL,
  rows        BLOB NOT NULL
) STRICT;

-- Files of routes whose backend is the store.
CREATE TABLE project_entries (
  project_id   TEXT NOT NULL REFERENCES projects ON DELETE CASCADE,
  path         TEXT NOT NULL,
  is_directory INTEGER NOT NULL,
  bytes        BLOB NOT NULL,
  modified_at  INTEGER NOT NULL,
  version      INTEGER NOT NULL,
  PRIMARY KEY (project_id, path)
) STRICT, WITHOUT ROWID;

-- The statistics are kept by the database itself, in the transaction of what they count.
CREATE TRIGGER session_opened AFTER INSERT ON sessions BEGIN
  UPDATE projects SET sessions = sessions + 1, last_used_at = max(last_used_at, NEW.created_at),
         warned_at = NULL
  WHERE project_id = (SELECT project_id FROM threads WHERE thread_id = NEW.thread_id);
END;
CREATE TRIGGER session_used AFTER UPDATE OF last_active ON sessions
WHEN NEW.last_active <> OLD.last_active BEGIN
  UPDATE projects SET warned_at = NULL, last_used_at = max(last_used_at, coalesce(
    CAST(unixepoch(NEW.last_active ->> '$.at', 'subsec') * 1000000 AS INTEGER), 0))
  WHERE project_id = (SELECT project_id FROM threads WHERE thread_id = NEW.thread_id);
END;
CREATE TRIGGER command_begun AFTER INSERT ON commands BEGIN
  UPDATE projects SET commands = commands + 1, warned_at = NULL,
         output_bytes = output_bytes + NEW.stdout_bytes + NEW.stderr_bytes,
         last_used_at = max(last_used_at, NEW.created_at)
  WHERE project_id = (SELECT project_id FROM threads JOIN terminals USING (thread_id)
                      WHERE terminals.terminal_id = NEW.terminal_id);
END;
CREATE TRIGGER command_said AFTER UPDATE OF stdout_bytes, stderr_bytes ON commands
WHEN NEW.stdout_bytes <> OLD.stdout_bytes OR NEW.stderr_bytes <> OLD.stderr_bytes BEGIN
  UPDATE projects SET output_bytes =
    max(0, output_bytes + NEW.stdout_bytes + NEW.stderr_bytes - OLD.stdout_bytes - OLD.stderr_bytes)
  WHERE project_id = (SELECT project_id FROM threads JOIN terminals USING (thread_id)
                      WHERE terminals.terminal_id = NEW.terminal_id);
END;
CREATE TRIGGER thread_gone BEFORE DELETE ON threads BEGIN
  INSERT OR REPLACE INTO session_records
    SELECT session_id, OLD.project_id, thread_id, state, created, last_active, created_at
    FROM sessions WHERE thread_id = OLD.thread_id;
END;
CREATE TRIGGER session_gone BEFORE DELETE ON sessions BEGIN
  INSERT OR REPLACE INTO session_records
    SELECT OLD.session_id, project_id, OLD.thread_id, OLD.state, OLD.created, OLD.last_active,
           OLD.created_at
    FROM threads WHERE thread_id = OLD.thread_id;
END;
