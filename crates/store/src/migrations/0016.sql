-- A checksum covers the columns before it, so it must be the last one. It is computed after the migrations.
DROP TRIGGER IF EXISTS sandboxes_inserted_checksum;
DROP TRIGGER IF EXISTS sandboxes_updated_checksum;
ALTER TABLE sandboxes ADD COLUMN lifetime_s INTEGER;
ALTER TABLE sandboxes DROP COLUMN checksum;
ALTER TABLE sandboxes ADD COLUMN checksum INTEGER;
