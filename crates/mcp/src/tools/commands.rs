//! Tools for a command that runs or has ended: output, input, cancellation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    exec,
    progress::{CallProgress, cancelled},
    tool::{ToolCall, ToolError, ToolReply},
};
use crate::{
    command::{CommandRecord, CommandResult, RecordStatus},
    native::{escape, target},
};

/// Default and maximum number of bytes of one read.
const DEFAULT_OUTPUT_BYTES: u64 = 32 << 10;
const MAX_OUTPUT_BYTES: u64 = 256 << 10;
const MAX_WAIT_MS: u64 = 50_000;

/// Selects a range of the output of a command.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandOutputArguments {
    /// Id of the command, from `exec`.
    command_id: String,
    /// `stdout` by default.
    #[serde(default)]
    stream: OutputName,
    /// Offset of the first byte; 0 by default.
    from: Option<u64>,
    /// Maximum number of bytes; 32768 by default, 262144 at most.
    limit: Option<u64>,
    /// Time to wait for output if there is none yet, in milliseconds; at most 50000.
    wait_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OutputName {
    #[default]
    Stdout,
    Stderr,
}

/// A range of the output of a command.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CommandOutput {
    /// The output; bytes that are not UTF-8 are replaced.
    data: String,
    /// Offset of the first byte.
    offset: u64,
    /// Offset after the last byte, for the next call.
    next_offset: u64,
    /// Whether no more output can follow.
    end: bool,
    /// Status of the command.
    status: RecordStatus,
}

pub(crate) async fn command_output(
    call: ToolCall,
    arguments: CommandOutputArguments,
) -> Result<ToolReply<CommandOutput>, ToolError> {
    let stream = match arguments.stream {
        OutputName::Stdout => "stdout",
        OutputName::Stderr => "stderr",
    };
    let limit = arguments.limit.unwrap_or(DEFAULT_OUTPUT_BYTES).clamp(1, MAX_OUTPUT_BYTES);
    let wait = arguments.wait_ms.map(|ms| ms.min(MAX_WAIT_MS).to_string());
    let target = target(
        format!("/api/commands/{}/output", escape(&arguments.command_id)),
        &[
            ("stream", Some(stream.to_owned())),
            ("from", arguments.from.map(|from| from.to_string())),
            ("limit", Some(limit.to_string())),
            ("wait_ms", wait),
        ],
    );
    let waited = CallProgress::new(&call).wait(&call, call.native.get(&target)).await;
    let reply = waited.ok_or_else(cancelled)??;
    let record = CommandRecord::read(&call.native, &arguments.command_id).await?;
    let number = |name: &str| reply.header(name).parse().unwrap_or_default();
    let output = CommandOutput {
        data: String::from_utf8_lossy(&reply.body).into_owned(),
        offset: number("x-offset"),
        next_offset: number("x-next-offset"),
        end: reply.header("x-end") == "true",
        status: record.status,
    };
    let next = output.next_offset;
    let rest = match output.end {
        true => format!("[end of {stream}]"),
        false => format!("[more may follow; continue with from={next}]"),
    };
    Ok(ToolReply::Done { text: format!("{}\n{rest}", output.data), data: output })
}

/// Input for a command.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandInputArguments {
    /// Id of a command that was started with `keep_stdin_open`.
    command_id: String,
    /// The input, with a line feed at the end of each line.
    #[serde(default)]
    data: String,
    /// Closes standard input after this data.
    #[serde(default)]
    eof: bool,
    /// Makes a repeated call safe: input with the same id is written once.
    write_id: Option<String>,
}

/// The input was accepted.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AcceptedInput {
    /// Number of bytes.
    bytes: usize,
}

pub(crate) async fn command_input(
    call: ToolCall,
    arguments: CommandInputArguments,
) -> Result<ToolReply<AcceptedInput>, ToolError> {
    let target = format!("/api/commands/{}/stdin", escape(&arguments.command_id));
    let bytes = arguments.data.len();
    let mut body = json!({"data": arguments.data, "eof": arguments.eof});
    if let Some(write_id) = arguments.write_id {
        body["write_id"] = json!(write_id);
    }
    call.native.post(&target, &body).await?;
    Ok(ToolReply::Done { text: format!("{bytes} bytes written"), data: AcceptedInput { bytes } })
}

/// Selects the command to cancel.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandCancelArguments {
    /// Id of the command, from `exec`.
    command_id: String,
}

pub(crate) async fn command_cancel(
    call: ToolCall,
    arguments: CommandCancelArguments,
) -> Result<ToolReply<CommandResult>, ToolError> {
    exec::cancel(&call.native, &arguments.command_id).await?;
    CommandRecord::read(&call.native, &arguments.command_id).await?.reply(&call.native).await
}
