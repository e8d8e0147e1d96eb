-- The deletion of a row searches every table that refers to it, so each reference needs an index. Sections no longer
-- refer to blobs: `refs` counts them, and an index of hashes would cost every command a page.
CREATE TABLE unreferenced_sections (
  terminal_id TEXT NOT NULL REFERENCES terminals ON DELETE CASCADE,
  name        TEXT NOT NULL,
  version     INTEGER NOT NULL,
  hash        BLOB,
  checksum    INTEGER,
  PRIMARY KEY (terminal_id, name, version)
) STRICT, WITHOUT ROWID;
INSERT INTO unreferenced_sections (terminal_id, name, version, hash, checksum)
  SELECT terminal_id, name, version, hash, checksum FROM terminal_sections;
DROP TABLE terminal_sections;
ALTER TABLE unreferenced_sections RENAME TO terminal_sections;

CREATE INDEX sandboxes_by_project ON sandboxes (project_id);
