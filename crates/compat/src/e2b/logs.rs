//! The log of a sandbox: the start and the end of each command.

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

/// The limit of lines per response.
const MAX_LINES: usize = 1000;
/// The limit of commands read per terminal.
const MAX_COMMANDS_PER_TERMINAL: u32 = 200;
/// The levels in order of severity, the lowest first.
const LEVELS: [&str; 4] = ["debug", "info", "warn", "error"];

/// The filters of a log request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LogsQuery {
    /// The start in milliseconds since 1970, in the first version of the API.
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
    /// Selects the requested lines from all lines, which are ordered by time.
    fn select(&self, mut lines: Vec<SandboxLogLine>) -> Result<Vec<SandboxLogLine>, E2bRefusal> {
        let bad = |message| E2bRefusal::new(StatusCode::BAD_REQUEST, message);
        let backward = match self.direction.as_deref() {
            None | Some("forward") => false,
            Some("backward") => true,
            Some(_) => return Err(bad("direction must be forward or backward")),
        };
        let rank = |name: &str| LEVELS.iter().position(|level| *level == name);
        let min_level = match &self.level {
            Some(name) => {
                rank(name).ok_or_else(|| bad("level must be debug, info, warn or error"))?
            }
            None => 0,
        };
        let from = self.cursor.or(self.start);
        lines.retain(|line| {
            let at = line.at.as_millisecond();
            let is_in_range =
                from.is_none_or(|from| if backward { at <= from } else { at >= from });
            let is_found =
                self.search.as_ref().is_none_or(|word| line.text.contains(word.as_str()));
            is_in_range && is_found && rank(line.level) >= Some(min_level)
        });
        let limit = self.limit.unwrap_or(MAX_LINES).min(MAX_LINES);
        if backward {
            lines.reverse();
        } else if from.is_none() {
            // Without a start, the newest lines are returned.
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

async fn selected(
    app: &Adapter,
    name: &str,
    query: &LogsQuery,
) -> Result<Vec<SandboxLogLine>, E2bRefusal> {
    let sandbox = find(app, name).await?;
    query.select(lines(app, &sandbox).await?)
}

/// Returns the log, in the first version of the API.
pub(super) async fn logs_v1(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(query): Query<LogsQuery>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let lines = selected(&app, &name, &query).await?;
    let view = |line: &SandboxLogLine| json!({"timestamp": line.at.to_string(), "line": line.text});
    let plain: Vec<Value> = lines.iter().map(view).collect();
    let entries: Vec<Value> = lines.iter().map(SandboxLogLine::entry).collect();
    Ok(axum::Json(json!({"logs": plain, "logEntries": entries})))
}

/// Returns the log, in the second version of the API.
pub(super) async fn logs_v2(
    State(app): State<Adapter>,
    Path(name): Path<String>,
    Query(query): Query<LogsQuery>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let lines = selected(&app, &name, &query).await?;
    let entries: Vec<Value> = lines.iter().map(SandboxLogLine::entry).collect();
    Ok(axum::Json(json!({"logs": entries})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requested_lines_are_selected() {
        let line = |second: i64, level: &'static str| SandboxLogLine {
            at: Timestamp::from_second(second).unwrap(),
            text: format!("line {second}"),
            level,
        };
        let check = |query: Value, expected: Option<&[i64]>| {
            let lines = vec![line(1, "info"), line(2, "error"), line(3, "info")];
            let found =
                serde_json::from_value::<LogsQuery>(query.clone()).unwrap().select(lines).ok();
            let found: Option<Vec<i64>> =
                found.map(|lines| lines.iter().map(|line| line.at.as_second()).collect());
            assert_eq!(found.as_deref(), expected, "{query}");
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
