-- Sandboxes: a thread's compute with settings and a lifetime. The facts that were labels of threads become
-- columns (`sandbox_labels.sql`, which belongs to this migration).
CREATE TABLE sandboxes (
  thread_id            TEXT PRIMARY KEY REFERENCES threads ON DELETE CASCADE,
  project_id           TEXT NOT NULL REFERENCES projects,
  name                 TEXT,
  origin               TEXT NOT NULL,
  template             TEXT NOT NULL,
  build_id             TEXT,
  user                 TEXT NOT NULL,
  home                 TEXT NOT NULL,
  state                TEXT NOT NULL,
  started_at           INTEGER NOT NULL,
  expires_at           INTEGER,
  on_expiry            TEXT NOT NULL,
  expires_while_paused INTEGER NOT NULL,
  delete_after_stop_s  INTEGER,
  auto_resume          INTEGER NOT NULL,
  port_access          TEXT NOT NULL,
  labels               TEXT NOT NULL DEFAULT '{}',
  extra                TEXT NOT NULL DEFAULT '{}',
  created_at           INTEGER NOT NULL,
  updated_at           INTEGER NOT NULL,
  revision             INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX sandboxes_by_name ON sandboxes (project_id, origin, name) WHERE name IS NOT NULL;
CREATE INDEX sandboxes_by_time ON sandboxes (started_at, thread_id);
CREATE INDEX sandboxes_by_expiry ON sandboxes (expires_at) WHERE expires_at IS NOT NULL;

