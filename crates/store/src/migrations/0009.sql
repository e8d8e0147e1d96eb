-- When a share was created, by the wall clock and the clock since boot; absent in shares of earlier versions.
ALTER TABLE shares ADD COLUMN created TEXT;
