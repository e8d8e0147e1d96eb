-- Requests of agents to people, each on one terminal. A secret is never stored.
CREATE TABLE handoffs (
  handoff_id  TEXT PRIMARY KEY,
  terminal_id TEXT NOT NULL REFERENCES terminals ON DELETE CASCADE,
  thread_id   TEXT NOT NULL,
  kind        TEXT NOT NULL,
  reason      TEXT NOT NULL,
  options     TEXT NOT NULL,
  word        TEXT NOT NULL,
  state       TEXT NOT NULL,
  created     TEXT NOT NULL,
  timeout_us  INTEGER NOT NULL,
  notice      TEXT NOT NULL,
  created_at  INTEGER NOT NULL,
  revision    INTEGER NOT NULL,
  checksum    INTEGER
) STRICT;
CREATE INDEX handoffs_by_time ON handoffs (created_at, handoff_id);
CREATE INDEX handoffs_by_terminal ON handoffs (terminal_id, created_at, handoff_id);
CREATE INDEX handoffs_open ON handoffs (created_at, handoff_id) WHERE word = 'open';
