-- How long a lease's instances have run, and since when one runs that is not counted yet.
ALTER TABLE leases ADD COLUMN ran_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN counted_from INTEGER;
-- How long they had when a session was opened.
ALTER TABLE sessions ADD COLUMN ran_before_us INTEGER NOT NULL DEFAULT 0;
