//! Extractors for the terminal or command that a path names.

use std::collections::HashMap;

use axum::{extract::FromRequestParts, http::request::Parts};

use super::{App, error::Problem, extract::Path};
use engine::removal::Removal;
use model::{Command, CommandId, Terminal, TerminalId, TerminalStatus};

/// The terminal `{id}` of the path. If the path also names a session, the terminal must belong to it.
pub(super) struct TargetTerminal(pub Terminal);

impl FromRequestParts<App> for TargetTerminal {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Path(names) = Path::<HashMap<String, String>>::from_request_parts(parts, app).await?;
        let name = names.get("id").map_or("", String::as_str);
        let missing = || Problem::missing("terminal", name);
        let id: TerminalId = name.parse().map_err(|_| missing())?;
        let terminal = app.store.terminal(&id).await?.ok_or_else(missing)?;
        let of_other_session =
            names.get("sid").is_some_and(|sid| sid != terminal.thread_id.as_str());
        if of_other_session || terminal.status == TerminalStatus::Closed {
            return Err(missing());
        }
        Ok(TargetTerminal(terminal))
    }
}

/// The terminal `{id}` of a `DELETE`, whose removal may be in progress.
pub(super) enum Deletable {
    Present(Box<Terminal>),
    InProgress(Removal),
}

impl FromRequestParts<App> for Deletable {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match TargetTerminal::from_request_parts(parts, app).await {
            Ok(TargetTerminal(terminal)) => Ok(Deletable::Present(Box::new(terminal))),
            Err(problem) => {
                let names =
                    Path::<HashMap<String, String>>::from_request_parts(parts, app).await?.0;
                let id = names.get("id").map_or("", String::as_str);
                let removal = app.removals.of("terminal", &id);
                removal.map(Deletable::InProgress).ok_or(problem)
            }
        }
    }
}

/// The command `{id}` of the path, with its terminal.
pub(super) struct TargetCommand(pub Command, pub Terminal);

impl FromRequestParts<App> for TargetCommand {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Path(name) = Path::<String>::from_request_parts(parts, app).await?;
        let missing = || Problem::missing("command", &name);
        let id: CommandId = name.parse().map_err(|_| missing())?;
        let command = match app.terminals.running(&id) {
            Some(command) => command,
            None => app.store.command(&id).await?.ok_or_else(missing)?,
        };
        let terminal = app.store.terminal(&command.terminal_id).await?.ok_or_else(missing)?;
        Ok(TargetCommand(command, terminal))
    }
}
