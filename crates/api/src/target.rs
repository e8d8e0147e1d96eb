//! The terminal or command a path names, looked up once before the handler runs.

use std::collections::HashMap;

use axum::{extract::FromRequestParts, http::request::Parts};

use super::{App, error::Problem, extract::Path};
use engine::removal::Removal;
use model::{Command, CommandId, Terminal, TerminalId, TerminalStatus};

/// The terminal `{id}` of the path. Where the path names a session too, it must be that one's.
pub struct Target(pub Terminal);

impl FromRequestParts<App> for Target {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Path(names) = Path::<HashMap<String, String>>::from_request_parts(parts, app).await?;
        let name = names.get("id").map_or("", String::as_str);
        let missing = || Problem::missing("terminal", name);
        let id: TerminalId = name.parse().map_err(|_| missing())?;
        let terminal = app.store.terminal(&id).await?.ok_or_else(missing)?;
        let elsewhere = names.get("sid").is_some_and(|sid| sid != terminal.thread_id.as_str());
        if elsewhere || terminal.status == TerminalStatus::Closed {
            return Err(missing());
        }
        Ok(Target(terminal))
    }
}

/// The terminal `{id}` of the path, to be deleted: it may be on its way already.
pub(super) enum Deletable {
    There(Box<Terminal>),
    Going(Removal),
}

impl FromRequestParts<App> for Deletable {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match Target::from_request_parts(parts, app).await {
            Ok(Target(terminal)) => Ok(Deletable::There(Box::new(terminal))),
            Err(problem) => {
                let names =
                    Path::<HashMap<String, String>>::from_request_parts(parts, app).await?.0;
                let id = names.get("id").map_or("", String::as_str);
                let going = app.removals.of("terminal", &id);
                going.map(Deletable::Going).ok_or(problem)
            }
        }
    }
}

/// The command `{id}` of the path, with its terminal.
pub struct TargetCommand(pub Command, pub Terminal);

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
