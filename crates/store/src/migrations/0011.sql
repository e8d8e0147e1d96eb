-- The caller of each idempotency key ('' is the owner), and the bytes of the responses that are kept for it.
ALTER TABLE idempotency ADD COLUMN caller TEXT NOT NULL DEFAULT '';
UPDATE idempotency SET caller = substr(key, 2, instr(substr(key, 2), char(10)) - 1)
  WHERE substr(key, 1, 1) = char(10);
CREATE INDEX idempotency_by_caller ON idempotency (caller, id);
CREATE INDEX idempotency_answered ON idempotency (caller, id) WHERE status IS NOT NULL;

CREATE TABLE idempotency_bytes (
  caller TEXT PRIMARY KEY,
  bytes  INTEGER NOT NULL
) STRICT;
INSERT INTO idempotency_bytes (caller, bytes)
  SELECT caller, sum(length(headers) + coalesce(length(body), 0)) FROM idempotency
  WHERE status IS NOT NULL GROUP BY caller;
CREATE TRIGGER idempotency_answered AFTER UPDATE OF status ON idempotency BEGIN
  INSERT INTO idempotency_bytes (caller, bytes) VALUES (new.caller,
    iif(new.status IS NULL, 0, length(new.headers) + coalesce(length(new.body), 0))
      - iif(old.status IS NULL, 0, length(old.headers) + coalesce(length(old.body), 0)))
  ON CONFLICT (caller) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER idempotency_removed AFTER DELETE ON idempotency WHEN old.status IS NOT NULL BEGIN
  UPDATE idempotency_bytes SET bytes = bytes - length(old.headers) - coalesce(length(old.body), 0)
    WHERE caller = old.caller;
  DELETE FROM idempotency_bytes WHERE caller = old.caller AND bytes = 0;
END;
