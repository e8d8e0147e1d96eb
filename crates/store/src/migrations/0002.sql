-- What a command wrote, where that is little; the rest is in the host's files. Apart from the
-- receipts, so that a page of history reads none of it.
CREATE TABLE command_output (
  command_id TEXT PRIMARY KEY REFERENCES commands ON DELETE CASCADE,
  stdout     BLOB NOT NULL,
  stderr     BLOB NOT NULL
) STRICT, WITHOUT ROWID;
