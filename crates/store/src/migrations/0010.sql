-- Deletions whose processes and instances are not ended yet.
CREATE TABLE removals (
  number    INTEGER PRIMARY KEY,
  noun      TEXT NOT NULL,
  id        TEXT NOT NULL,
  terminals TEXT NOT NULL,
  leases    TEXT NOT NULL
) STRICT;
