-- Commands are use of their thread.
CREATE TRIGGER thread_used_by_command AFTER INSERT ON commands BEGIN
  UPDATE threads SET updated_at = max(updated_at, coalesce(NEW.finished_at, NEW.started_at, NEW.created_at))
  WHERE thread_id = (SELECT thread_id FROM terminals WHERE terminal_id = NEW.terminal_id);
END;
CREATE TRIGGER thread_used_by_command_end AFTER UPDATE OF started_at, finished_at ON commands
WHEN NEW.started_at IS NOT OLD.started_at OR NEW.finished_at IS NOT OLD.finished_at BEGIN
  UPDATE threads SET updated_at = max(updated_at, coalesce(NEW.finished_at, NEW.started_at, NEW.created_at))
  WHERE thread_id = (SELECT thread_id FROM terminals WHERE terminal_id = NEW.terminal_id);
END;
