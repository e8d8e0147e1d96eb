-- A checksum of the other columns of each row, which triggers keep up to date.
ALTER TABLE meta ADD COLUMN checksum INTEGER;
ALTER TABLE projects ADD COLUMN checksum INTEGER;
ALTER TABLE leases ADD COLUMN checksum INTEGER;
ALTER TABLE threads ADD COLUMN checksum INTEGER;
ALTER TABLE messages ADD COLUMN checksum INTEGER;
ALTER TABLE sessions ADD COLUMN checksum INTEGER;
ALTER TABLE terminals ADD COLUMN checksum INTEGER;
ALTER TABLE terminal_versions ADD COLUMN checksum INTEGER;
ALTER TABLE terminal_sections ADD COLUMN checksum INTEGER;
ALTER TABLE commands ADD COLUMN checksum INTEGER;
ALTER TABLE idempotency ADD COLUMN checksum INTEGER;
ALTER TABLE tokens ADD COLUMN checksum INTEGER;
ALTER TABLE ledger ADD COLUMN checksum INTEGER;
ALTER TABLE command_output ADD COLUMN checksum INTEGER;
ALTER TABLE session_records ADD COLUMN checksum INTEGER;
ALTER TABLE trash ADD COLUMN checksum INTEGER;
ALTER TABLE project_entries ADD COLUMN checksum INTEGER;
ALTER TABLE shares ADD COLUMN checksum INTEGER;
ALTER TABLE templates ADD COLUMN checksum INTEGER;
ALTER TABLE sandboxes ADD COLUMN checksum INTEGER;
ALTER TABLE removals ADD COLUMN checksum INTEGER;
ALTER TABLE idempotency_bytes ADD COLUMN checksum INTEGER;

-- The same triggers as before, with the names of the columns.
DROP TRIGGER thread_gone;
DROP TRIGGER session_gone;
CREATE TRIGGER thread_gone BEFORE DELETE ON threads BEGIN
  INSERT OR REPLACE INTO session_records
    (session_id, project_id, thread_id, state, created, last_active, created_at)
    SELECT session_id, OLD.project_id, thread_id, state, created, last_active, created_at
    FROM sessions WHERE thread_id = OLD.thread_id;
END;
CREATE TRIGGER session_gone BEFORE DELETE ON sessions BEGIN
  INSERT OR REPLACE INTO session_records
    (session_id, project_id, thread_id, state, created, last_active, created_at)
    SELECT OLD.session_id, project_id, OLD.thread_id, OLD.state, OLD.created, OLD.last_active,
           OLD.created_at
    FROM threads WHERE thread_id = OLD.thread_id;
END;
