-- Links that show one terminal and nothing else. The secret of each is in its link alone.
CREATE TABLE shares (
  share_id    TEXT PRIMARY KEY,
  terminal_id TEXT NOT NULL REFERENCES terminals ON DELETE CASCADE,
  name        TEXT NOT NULL,
  hash        BLOB NOT NULL UNIQUE,
  created_at  INTEGER NOT NULL,
  expires_at  INTEGER NOT NULL,
  revoked_at  INTEGER
) STRICT;
CREATE INDEX shares_by_terminal ON shares (terminal_id, created_at, share_id);
CREATE INDEX shares_by_time ON shares (created_at, share_id);
