-- The lifetime of a native sandbox was one of the values that only its API interprets.
UPDATE sandboxes
  SET lifetime_s = CAST(json_extract(extra, '$.timeout_s') AS INTEGER), extra = json_remove(extra, '$.timeout_s')
  WHERE origin = 'stead' AND json_extract(extra, '$.timeout_s') IS NOT NULL;
