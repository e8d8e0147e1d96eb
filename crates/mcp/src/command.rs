//! A command as MCP clients see it: as the result of `exec`, and as a task.
//!
//! Everything is read from the command's receipt and output, which the server keeps. A task therefore survives
//! the client and the server, and this layer has no state of its own.

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::{SignedDuration, Timestamp};
use rmcp::model::{
    CallToolResponse, DetailedTask, ErrorCode, JsonObject, Task, TaskPayload, TaskStatus,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    native::{NativeApi, NativeProblem, escape},
    tools::{ToolError, ToolReply},
};

/// Bytes of the beginning and of the end of each stream in a result.
pub(crate) const MAX_RESULT_BYTES: usize = HEAD_BYTES + TAIL_BYTES;
const HEAD_BYTES: usize = 16 << 10;
const TAIL_BYTES: usize = 16 << 10;
/// How often a client should ask for the state of a task.
const TASK_POLL_INTERVAL_MS: u64 = 1000;
/// How long after its end a client may count on a task. The server removes commands by their number, not by age.
const TASK_TTL_MS: u64 = 7 * 24 * 3600 * 1000;

/// The receipt of a command, as the native API returns it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CommandRecord {
    pub(crate) command_id: String,
    pub(crate) status: RecordStatus,
    exit_code: Option<i32>,
    signal: Option<String>,
    stdout: Option<String>,
    stdout_base64: Option<String>,
    stderr: Option<String>,
    stderr_base64: Option<String>,
    stdout_bytes: u64,
    stderr_bytes: u64,
    duration_ms: u64,
    shell_restarted: bool,
    waiting_for_input: bool,
    terminal_id: String,
    version: u64,
    cwd: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordStatus {
    Running,
    Finished,
    TimedOut,
    Cancelled,
    Lost,
    NotStarted,
}

/// The result of a command.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CommandResult {
    /// Id of the command; `command_output` reads its output by this id.
    command_id: String,
    /// `running` means that the command continues.
    status: RecordStatus,
    /// Exit code; null unless the command exited.
    exit_code: Option<i32>,
    /// Name of the signal that ended the command.
    signal: Option<String>,
    /// Standard output; only its beginning and its end if `stdout_omitted` is set.
    stdout: String,
    /// Standard error; only its beginning and its end if `stderr_omitted` is set.
    stderr: String,
    /// Bytes written to standard output.
    stdout_bytes: u64,
    /// Bytes written to standard error.
    stderr_bytes: u64,
    /// The range of standard output that is omitted.
    stdout_omitted: Option<OmittedRange>,
    /// The range of standard error that is omitted.
    stderr_omitted: Option<OmittedRange>,
    /// Duration in milliseconds.
    duration_ms: u64,
    /// Working directory of the shell after the command.
    cwd: String,
    /// Id of the terminal that the command runs in.
    terminal_id: String,
    /// Version of the terminal's state after the command, for `rollback` and `fork`.
    version: u64,
    /// Whether the command waits for input on the terminal; `screen` shows it and `type` answers.
    waiting_for_input: bool,
    /// Whether the shell had to be restarted; its state was restored.
    shell_restarted: bool,
}

/// A range of bytes that `command_output` can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct OmittedRange {
    /// Offset of the first omitted byte.
    from: u64,
    /// Offset after the last omitted byte.
    to: u64,
}

impl CommandRecord {
    /// Reads the receipt of a command.
    pub(crate) async fn read(
        native: &NativeApi,
        command_id: &str,
    ) -> Result<CommandRecord, NativeProblem> {
        let reply = native.get(&format!("/api/commands/{}", escape(command_id))).await?;
        CommandRecord::parse(reply.json())
    }

    pub(crate) fn parse(receipt: Value) -> Result<CommandRecord, NativeProblem> {
        serde_json::from_value(receipt).map_err(|error| {
            tracing::error!(%error, "cannot read a receipt");
            NativeProblem {
                status: http::StatusCode::INTERNAL_SERVER_ERROR,
                code: "internal".into(),
                detail: "cannot read the receipt of the command".into(),
            }
        })
    }

    pub(crate) fn is_running(&self) -> bool {
        self.status == RecordStatus::Running
    }

    /// Returns the result of `exec`, with as much output as a result may contain.
    pub(crate) async fn reply(
        self,
        native: &NativeApi,
    ) -> Result<ToolReply<CommandResult>, ToolError> {
        let id = &self.command_id;
        let stdout = bytes(self.stdout.as_deref(), self.stdout_base64.as_deref());
        let stderr = bytes(self.stderr.as_deref(), self.stderr_base64.as_deref());
        let stdout = excerpt(native, id, "stdout", stdout, self.stdout_bytes).await?;
        let stderr = excerpt(native, id, "stderr", stderr, self.stderr_bytes).await?;
        let text = self.text(&stdout, &stderr);
        let failed = matches!(self.status, RecordStatus::Lost | RecordStatus::NotStarted);
        let data = CommandResult {
            command_id: self.command_id,
            status: self.status,
            exit_code: self.exit_code,
            signal: self.signal,
            stdout: stdout.text,
            stderr: stderr.text,
            stdout_bytes: self.stdout_bytes,
            stderr_bytes: self.stderr_bytes,
            stdout_omitted: stdout.omitted,
            stderr_omitted: stderr.omitted,
            duration_ms: self.duration_ms,
            cwd: self.cwd,
            terminal_id: self.terminal_id,
            version: self.version,
            waiting_for_input: self.waiting_for_input,
            shell_restarted: self.shell_restarted,
        };
        Ok(match failed {
            true => ToolReply::Failed { text, data },
            false => ToolReply::Done { text, data },
        })
    }

    /// Describes the result for the model: the output, then how the command ended.
    fn text(&self, stdout: &Excerpt, stderr: &Excerpt) -> String {
        let mut text = stdout.text.clone();
        if !stderr.text.is_empty() {
            end_line(&mut text);
            text.push_str("[stderr]\n");
            text.push_str(&stderr.text);
        }
        end_line(&mut text);
        let id = &self.command_id;
        text.push_str(&match (self.status, self.exit_code, &self.signal) {
            (RecordStatus::Running, _, _) if self.waiting_for_input => {
                format!("[running and waiting for input on the terminal; command_id {id}]")
            }
            (RecordStatus::Running, _, _) => format!(
                "[still running; read more with command_output, or stop it with command_cancel; command_id {id}]"
            ),
            (RecordStatus::Finished, Some(code), _) => {
                format!("[exit code {code}, {} ms, {}]", self.duration_ms, self.cwd)
            }
            (RecordStatus::Finished, None, Some(signal)) => format!("[ended by {signal}]"),
            (RecordStatus::Finished, None, None) => "[ended]".to_owned(),
            (RecordStatus::TimedOut, _, _) => format!("[timed out after {} ms]", self.duration_ms),
            (RecordStatus::Cancelled, _, _) => "[cancelled]".to_owned(),
            (RecordStatus::Lost, _, _) => {
                "[lost: its sandbox ended before the command did]".to_owned()
            }
            (RecordStatus::NotStarted, _, _) => "[not started]".to_owned(),
        });
        for (name, excerpt) in [("stdout", stdout), ("stderr", stderr)] {
            if let Some(OmittedRange { from, to }) = excerpt.omitted {
                text.push_str(&format!(
                    "\n[{name}: bytes {from} to {to} are omitted; command_output reads them by command_id {id}]"
                ));
            }
        }
        text
    }

    /// Returns the command as a task without its result.
    pub(crate) fn task(&self) -> Task {
        let created = created_at(&self.command_id).unwrap_or_else(Timestamp::now);
        let updated = match self.is_running() {
            true => Timestamp::now(),
            false => {
                let ran = i64::try_from(self.duration_ms).unwrap_or(i64::MAX);
                created.checked_add(SignedDuration::from_millis(ran)).unwrap_or(created)
            }
        };
        let task = Task::new(
            self.command_id.clone(),
            TaskStatus::Working,
            created.to_string(),
            updated.to_string(),
        );
        let ran = u64::try_from(updated.duration_since(created).as_millis()).unwrap_or_default();
        task.with_poll_interval_ms(TASK_POLL_INTERVAL_MS).with_ttl_ms(ran + TASK_TTL_MS)
    }

    /// Returns the command as a task with its result. A command that ran completes its task, whatever its exit
    /// code is.
    pub(crate) async fn detailed_task(self, native: &NativeApi) -> Result<DetailedTask, ToolError> {
        let mut task = self.task();
        let payload = match self.status {
            RecordStatus::Running => {
                if self.waiting_for_input {
                    task = task.with_status_message("waiting for input on the terminal");
                }
                TaskPayload::Working
            }
            RecordStatus::Cancelled => TaskPayload::Cancelled,
            RecordStatus::Finished | RecordStatus::TimedOut => {
                TaskPayload::Completed { result: result_object(self.reply(native).await?) }
            }
            RecordStatus::Lost => failed("the sandbox ended before the command did"),
            RecordStatus::NotStarted => failed("the command was not started"),
        };
        Ok(DetailedTask::new(task, payload))
    }
}

fn failed(message: &str) -> TaskPayload {
    let error = json!({"code": ErrorCode::INTERNAL_ERROR, "message": message});
    TaskPayload::Failed { error: object(error) }
}

fn result_object(reply: ToolReply<CommandResult>) -> JsonObject {
    match reply.into_response() {
        CallToolResponse::Complete(result) => {
            object(serde_json::to_value(result).unwrap_or_default())
        }
        _ => JsonObject::new(),
    }
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

fn bytes(text: Option<&str>, base64: Option<&str>) -> Vec<u8> {
    match (text, base64) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(base64)) => BASE64_STANDARD.decode(base64).unwrap_or_default(),
        (None, None) => Vec::new(),
    }
}

/// The part of a stream that a result contains.
struct Excerpt {
    text: String,
    omitted: Option<OmittedRange>,
}

/// Returns the beginning and the end of a stream. `first` is its beginning, and maybe all of it.
async fn excerpt(
    native: &NativeApi,
    command_id: &str,
    stream: &str,
    first: Vec<u8>,
    total: u64,
) -> Result<Excerpt, NativeProblem> {
    let total = total.max(first.len() as u64);
    if total <= MAX_RESULT_BYTES as u64 && first.len() as u64 == total {
        return Ok(Excerpt { text: lossy(first), omitted: None });
    }
    if total <= MAX_RESULT_BYTES as u64 {
        let all = read_range(native, command_id, stream, 0, MAX_RESULT_BYTES as u64).await?;
        return Ok(Excerpt { text: lossy(all), omitted: None });
    }
    let head = first[..floor_boundary(&first, HEAD_BYTES)].to_vec();
    let tail_from = total - TAIL_BYTES as u64;
    let tail = read_range(native, command_id, stream, tail_from, TAIL_BYTES as u64).await?;
    let skipped = ceil_boundary(&tail);
    let omitted = OmittedRange { from: head.len() as u64, to: tail_from + skipped as u64 };
    let count = omitted.to - omitted.from;
    let text =
        format!("{}\n[{count} bytes omitted]\n{}", lossy(head), lossy(tail[skipped..].to_vec()));
    Ok(Excerpt { text, omitted: Some(omitted) })
}

/// Reads a range of output; empty if it is no longer kept.
async fn read_range(
    native: &NativeApi,
    command_id: &str,
    stream: &str,
    from: u64,
    limit: u64,
) -> Result<Vec<u8>, NativeProblem> {
    let path = format!("/api/commands/{}/output", escape(command_id));
    let target = format!("{path}?stream={stream}&from={from}&limit={limit}");
    match native.get(&target).await {
        Ok(reply) => Ok(reply.body.to_vec()),
        Err(problem) if problem.status == http::StatusCode::GONE => Ok(Vec::new()),
        Err(problem) => Err(problem),
    }
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Returns the last character boundary at or before `limit`.
fn floor_boundary(bytes: &[u8], limit: usize) -> usize {
    let mut end = limit.min(bytes.len());
    let is_inside = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    for _ in 0..3 {
        if end == 0 || !is_inside(end) {
            break;
        }
        end -= 1;
    }
    end
}

/// Returns how many bytes at the beginning belong to a character that started before them.
fn ceil_boundary(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count()
}

/// Returns when a command was created: its id is a UUID of version 7, which begins with that time.
fn created_at(command_id: &str) -> Option<Timestamp> {
    let (_, uuid) = command_id.rsplit_once('_')?;
    let millis = i64::from_str_radix(uuid.get(..12)?, 16).ok()?;
    Timestamp::from_millisecond(millis).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_never_splits_a_character() {
        let text = "aé€".as_bytes();
        let check = |limit: usize, expected: usize| {
            assert_eq!(floor_boundary(text, limit), expected, "{limit}");
        };
        check(0, 0);
        check(1, 1);
        check(2, 1);
        check(3, 3);
        check(5, 3);
        check(6, 6);
        check(9, 6);
        assert_eq!(ceil_boundary(&text[2..]), 1);
        assert_eq!(ceil_boundary(&text[4..]), 2);
        assert_eq!(ceil_boundary(text), 0);
    }

    #[test]
    fn the_id_of_a_command_says_when_it_was_created() {
        let at = created_at("cmd_0197f2a0c400700080000000deadbeef").unwrap();
        assert_eq!(at.as_millisecond(), 0x0197_f2a0_c400);
        assert_eq!(created_at("cmd_x"), None);
        assert_eq!(created_at("nothing"), None);
    }
}
