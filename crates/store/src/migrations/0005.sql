-- The limit of its instance that a command met.
ALTER TABLE commands ADD COLUMN limit_reached TEXT;
