//! The log of a sandbox: what was run in it, and how that ended.

use axum::{
    extract::{Path, Query, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{E2bRefusal, view::find};
use adapter::{Adapter, wrap};
use api::error::Problem;
use model::Timestamp;
use store::{CommandQuery, PageRequest, SandboxRecord};

/// Log lines of an answer.
const MAX_LINES: usize = 1000;
/// Commands that are read of each terminal.
const MAX_COMMANDS_PER_TERMINAL: u32 = 200;
/// How much a line counts, the least first.
const LEVELS: [&str; 4] = ["debug", "info", "warn", "error"];

/// Which lines are asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LogsQuery {
    /// Milliseconds: the first version's way to say from where.
    start: Option<i64>,
    cursor: Option<i64>,
    limit: Option<usize>,
    direction: Option<String>,
    level: Option<String>,
    search: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SandboxLogLine {
    at: Timestamp,
    text: String,
    level: &'static str,
}

impl SandboxLogLine {
    fn entry(&self) -> Value {
        json!({
            "timestamp": self.at.to_string(),
            "message": self.text,
            "level": self.level,
            "fields": {"logger": "process"},
        })
    }
}

impl LogsQuery {
    /// Takes what is wanted of all lines, the oldest first.
    fn take(&self, mut lines: Vec<SandboxLogLine>) -> Result<Vec<SandboxLogLine>, E2bRefusal> {
        let bad = |message| E2bRefusal::new(StatusCode::BAD_REQUEST, message);
        let backward = match self.direction.as_deref() {
            None | Some("forward") => false,
            Some("backward") => true,
            Some(_) => return Err(bad("direction is forward or backward")),
        };
        let rank = |word: &str| LEVELS.iter().position(|level| *level == word);
        let least = match &self.level {
            Some(word) => rank(word).ok_or_else(|| bad("level is debug, info, warn or error"))?,
            None => 0,
        };
        let from = self.cursor.or(self.start);
        lines.retain(|line| {
            let at = line.at.as_millisecond();
            let reached = from.is_none_or(|from| if backward { at <= from } else { at >= from });
            let found = self.search.as_ref().is_none_or(|word| line.text.contains(word.as_str()));
            reached && found && rank(line.level) >= Some(least)
        });
        let limit = self.limit.unwrap_or(MAX_LINES).min(MAX_LINES);
        if backward {
            lines.reverse();
        } else if from.is_none() {
            // Without a start: the last ones.
            lines.drain(..lines.len().saturating_sub(limit));
        }
        lines.truncate(limit);
        Ok(lines)
    }
}

async fn lines(app: &Adapter, sandbox: &SandboxRecord) -> Result<Vec<SandboxLogLine>, E2bRefusal> {
    let problem = |error| E2bRefusal::from(Problem::from(error));
    let mut lines = Vec::new();
    for terminal in app.store.thread_terminals(sandbox.id()).await.map_err(problem)? {
        let (query, page) =
            (CommandQuery::default(), PageRequest::first(MAX_COMMANDS_PER_TERMINAL));
        let commands = app.store.commands(&terminal.terminal_id, query, page).await;
        for command in commands.map_err(problem)?.items {
            let text = match wrap::parse(&command.text) {
                Some((config, _)) => [&[config.cmd], &config.args[..]].concat().join(" "),
                None => command.text.clone(),
            };
            if let (Some(at), Some(code)) = (command.finished_at, command.exit_code) {
                let level = if code == 0 { "info" } else { "error" };
                lines.push(SandboxLogLine {
                    at,
                    text: format!("exit status {code}: {text}"),
                    level,
                });
            }
            let (at, level) = (command.created_at, "info");
            lines.push(SandboxLogLine { at, text: format!("started: {text}"), level });
        }
    }
    lines.sort();
    Ok(lines)
}

async fn wanted(
    app: &Adapter,
    name: &str,
    wanted: &LogsQuery,
) -> Result<Vec<SandboxLogLine>, E2bRefusal> {
    let sandbox = find(app, name).await?;
    wanted.take(lines(app, &sandbox).await?)
}

/// The log in the first version of the API.
pub(super) async fn first(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(asked): Query<LogsQuery>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let lines = wanted(&app, &name, &asked).await?;
    let old = |line: &SandboxLogLine| json!({"timestamp": line.at.to_string(), "line": line.text});
    let old: Vec<Value> = lines.iter().map(old).collect();
    let entries: Vec<Value> = lines.iter().map(SandboxLogLine::entry).collect();
    Ok(axum::Json(json!({"logs": old, "logEntries": entries})))
}

/// The log in the second version of the API.
pub(super) async fn second(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(asked): Query<LogsQuery>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let lines = wanted(&app, &name, &asked).await?;
    let entries: Vec<Value> = lines.iter().map(SandboxLogLine::entry).collect();
    Ok(axum::Json(json!({"logs": entries})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_that_are_wanted_are_taken() {
        let line = |second: i64, level: &'static str| SandboxLogLine {
            at: Timestamp::from_second(second).unwrap(),
            text: format!("line {second}"),
            level,
        };
        let check = |wanted: Value, expected: Option<&[i64]>| {
            let lines = vec![line(1, "info"), line(2, "error"), line(3, "info")];
            let found =
                serde_json::from_value::<LogsQuery>(wanted.clone()).unwrap().take(lines).ok();
            let found: Option<Vec<i64>> =
                found.map(|lines| lines.iter().map(|line| line.at.as_second()).collect());
            assert_eq!(found.as_deref(), expected, "{wanted}");
        };
        check(json!({}), Some(&[1, 2, 3]));
        check(json!({"limit": 2}), Some(&[2, 3]));
        check(json!({"cursor": 2000, "limit": 1}), Some(&[2]));
        check(json!({"start": 2500}), Some(&[3]));
        check(json!({"direction": "backward", "cursor": 2000}), Some(&[2, 1]));
        check(json!({"level": "error"}), Some(&[2]));
        check(json!({"search": "line 3"}), Some(&[3]));
        check(json!({"level": "loud"}), None);
        check(json!({"direction": "up"}), None);
    }
}
