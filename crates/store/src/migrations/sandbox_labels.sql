-- Moves the facts of sandboxes from the labels of their threads into rows. Run by migration 8, and for a
-- project that was exported or deleted before it. A time such as 2026-11-17T13:14:15.123456Z becomes
-- microseconds; the end of all time means that there is no end.
INSERT INTO sandboxes (
  thread_id, project_id, name, origin, template, build_id, user, home, state, started_at, expires_at,
  on_expiry, expires_while_paused, delete_after_stop_s, auto_resume, port_access, labels, extra,
  created_at, updated_at)
SELECT
  thread_id,
  project_id,
  CASE WHEN row_number() OVER (
    PARTITION BY project_id, api, name ORDER BY created_at, thread_id) = 1 THEN name END,
  api,
  template,
  build,
  CASE api WHEN 'e2b' THEN 'user' ELSE 'daytona' END,
  coalesce(home, CASE api WHEN 'e2b' THEN '/home/user' ELSE '/home/daytona' END),
  CASE WHEN asleep IS NOT NULL THEN 'suspended'
       WHEN paused IS NOT NULL THEN 'paused'
       WHEN archived IS NOT NULL THEN 'archived'
       ELSE 'active' END,
  unixepoch(substr(started, 1, 19)) * 1000000
    + CAST(substr(rtrim(substr(started, 21), 'Z') || '000000', 1, 6) AS INTEGER),
  CASE WHEN ends < '9999-12-30' THEN
    unixepoch(substr(ends, 1, 19)) * 1000000
      + CAST(substr(rtrim(substr(ends, 21), 'Z') || '000000', 1, 6) AS INTEGER) END,
  CASE WHEN on_timeout = 'pause' THEN iif(pauses_files IS NULL, 'pause', 'suspend') ELSE 'delete' END,
  api = 'daytona',
  CASE WHEN CAST(auto_delete AS INTEGER) >= 0 THEN CAST(auto_delete AS INTEGER) * 60 END,
  coalesce(auto_resume = 'true', 0),
  CASE coalesce(ports, iif(api = 'e2b', 'anybody', 'key')) WHEN 'anybody' THEN 'public' ELSE 'token' END,
  (SELECT json_group_object(substr(key, 18), value) FROM json_each(found.labels)
   WHERE key GLOB 'sandbox.metadata.*'),
  (SELECT json_group_object(substr(key, 14), value) FROM json_each(found.labels)
   WHERE key GLOB 'sandbox.more.*' AND substr(key, 14) NOT IN (
     'name', 'build', 'asleep', 'paused', 'archived', 'pauses_files', 'auto_delete', 'ports')),
  created_at,
  updated_at
FROM (
  SELECT thread_id, project_id, labels, created_at, updated_at,
    labels ->> '$."sandbox.api"' AS api,
    labels ->> '$."sandbox.template"' AS template,
    labels ->> '$."sandbox.started"' AS started,
    labels ->> '$."sandbox.ends"' AS ends,
    labels ->> '$."sandbox.on_timeout"' AS on_timeout,
    labels ->> '$."sandbox.auto_resume"' AS auto_resume,
    labels ->> '$."sandbox.home"' AS home,
    nullif(labels ->> '$."sandbox.more.name"', '') AS name,
    labels ->> '$."sandbox.more.build"' AS build,
    labels ->> '$."sandbox.more.asleep"' AS asleep,
    labels ->> '$."sandbox.more.paused"' AS paused,
    labels ->> '$."sandbox.more.archived"' AS archived,
    labels ->> '$."sandbox.more.pauses_files"' AS pauses_files,
    labels ->> '$."sandbox.more.auto_delete"' AS auto_delete,
    labels ->> '$."sandbox.more.ports"' AS ports
  FROM threads
) AS found
WHERE api IN ('e2b', 'daytona')
  AND template IS NOT NULL
  AND unixepoch(substr(started, 1, 19)) IS NOT NULL
  AND unixepoch(substr(ends, 1, 19)) IS NOT NULL
  AND thread_id NOT IN (SELECT thread_id FROM sandboxes);

UPDATE threads SET labels = (
  SELECT json_group_object(key, value) FROM json_each(threads.labels) WHERE key NOT GLOB 'sandbox.*')
WHERE labels ->> '$."sandbox.api"' IS NOT NULL
  AND thread_id IN (SELECT thread_id FROM sandboxes);
