//! What a thread runs in its terminals, for lists and views of threads.

use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::{App, error::Problem};
use engine::terminal::CurrentCommand;
use model::{Command, Thread};

/// Characters of a command's text in a list.
const MAX_COMMAND_CHARS: usize = 200;

/// The current or latest command of a terminal.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct CommandSummary {
    /// Id of the command.
    command_id: String,
    /// Id of its terminal.
    terminal_id: String,
    /// Text of the command; long texts are truncated.
    command: String,
    /// `queued`, `running`, `finished`, `timed_out`, `cancelled`, `lost` or `not_started`.
    status: &'static str,
    /// Exit code; null unless the command exited.
    exit_code: Option<i32>,
    /// Whether the command is queued or running.
    running: bool,
    /// Start time; null for a command that has not started.
    #[schema(value_type = Option<String>)]
    pub(super) started_at: Option<Timestamp>,
    /// End time; null for a command that has not ended.
    #[schema(value_type = Option<String>)]
    finished_at: Option<Timestamp>,
    /// Whether the command waits for input on the terminal.
    waiting_for_input: bool,
}

impl CommandSummary {
    fn new(command: Command) -> CommandSummary {
        CommandSummary {
            command: command.text.chars().take(MAX_COMMAND_CHARS).collect(),
            status: command.status.word(),
            exit_code: command.exit_code,
            running: !command.status.is_end(),
            started_at: command.started_at,
            finished_at: command.finished_at,
            waiting_for_input: false,
            command_id: command.command_id.to_string(),
            terminal_id: command.terminal_id.to_string(),
        }
    }
}

impl From<CurrentCommand> for CommandSummary {
    fn from(current: CurrentCommand) -> CommandSummary {
        let waiting_for_input = current.waits_for_input;
        CommandSummary { waiting_for_input, ..CommandSummary::new(current.command) }
    }
}

/// Returns the first of the current commands of a thread's terminals, or else the latest command; and all current
/// ones.
pub(super) async fn summaries(
    app: &App,
    thread: &Thread,
    current: Vec<CurrentCommand>,
) -> Result<(Option<CommandSummary>, Vec<CommandSummary>), Problem> {
    let current: Vec<CommandSummary> = current.into_iter().map(CommandSummary::from).collect();
    let last = match current.first() {
        Some(first) => Some(first.clone()),
        None => app.store.latest_command(&thread.thread_id).await?.map(CommandSummary::new),
    };
    Ok((last, current))
}
