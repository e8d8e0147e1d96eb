-- What sandboxes of other people's APIs are made from: a name, its builds and tags as one document.
CREATE TABLE templates (
  template_id TEXT PRIMARY KEY,
  owner       TEXT NOT NULL,
  name        TEXT NOT NULL,
  body        TEXT NOT NULL,
  UNIQUE (owner, name)
) STRICT;
