//! Search in the commands and the output of all threads.

use std::time::Duration;

use axum::extract::State;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{App, error::Problem, extract::Query, page};
use engine::terminal::{
    FoundLine, LineSource, SearchBudget, SearchHit, SearchLimit, SearchPage, SearchRequest,
};
use model::{CommandId, Source, ThreadId};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(search))
}

const MAX_TEXT_BYTES: usize = 1000;
/// Output that one request reads.
const MAX_SEARCH_BYTES: u64 = 128 << 20;
/// How long one request searches.
const MAX_SEARCH_TIME: Duration = Duration::from_secs(2);

/// Selects what to search for, and where.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SearchQuery {
    /// The text. Upper and lower case are the same.
    q: String,
    /// Only commands of this thread.
    thread: Option<String>,
    /// Maximum number of items; 100 by default, 1000 at most.
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// A matching line of output, without control sequences.
#[derive(Debug, Serialize, ToSchema)]
struct MatchingLine {
    /// `stdout`, `stderr` or, for a typed command, `terminal`.
    stream: &'static str,
    /// Offset of the line in the stream.
    offset: u64,
    /// The line; of a long one the part around the match.
    text: String,
}

/// A command that matches.
#[derive(Debug, Serialize, ToSchema)]
struct SearchItem {
    /// Id of the command.
    command_id: String,
    /// Id of its thread.
    thread_id: String,
    /// Id of its terminal.
    terminal_id: String,
    /// The command text.
    command: String,
    /// `agent` for exec, `person` for typed commands.
    #[schema(value_type = String)]
    source: Source,
    /// `queued`, `running`, `finished`, `timed_out`, `cancelled`, `lost` or `not_started`.
    status: &'static str,
    /// Exit code; null unless the command exited.
    exit_code: Option<i32>,
    /// Time of the request.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// Whether the command text matches.
    in_command: bool,
    /// The first five matching lines of the output.
    lines: Vec<MatchingLine>,
    /// Whether more lines match.
    more_lines: bool,
}

/// A page of results.
#[derive(Debug, Serialize, ToSchema)]
struct SearchResults {
    /// The matching commands, newest first. May be empty before the last page.
    items: Vec<SearchItem>,
    /// The `cursor` with which the search continues; null if everything was searched.
    next_cursor: Option<String>,
    /// The limit that ended the search of this page early: `items`, `bytes` or `time`.
    stopped: Option<&'static str>,
    /// Number of commands searched for this page.
    commands: u64,
    /// Bytes of output read for this page.
    bytes: u64,
}

impl From<(LineSource, FoundLine)> for MatchingLine {
    fn from((source, line): (LineSource, FoundLine)) -> MatchingLine {
        let stream = match source {
            LineSource::Stdout => "stdout",
            LineSource::Stderr => "stderr",
            LineSource::Terminal => "terminal",
        };
        MatchingLine { stream, offset: line.offset, text: line.text }
    }
}

impl From<SearchHit> for SearchItem {
    fn from(hit: SearchHit) -> SearchItem {
        SearchItem {
            command_id: hit.command.command_id.to_string(),
            thread_id: hit.thread_id.to_string(),
            terminal_id: hit.command.terminal_id.to_string(),
            command: hit.command.text,
            source: hit.command.source,
            status: hit.command.status.word(),
            exit_code: hit.command.exit_code,
            created_at: hit.command.created_at,
            in_command: hit.in_command,
            lines: hit.lines.into_iter().map(MatchingLine::from).collect(),
            more_lines: hit.more_lines,
        }
    }
}

impl From<SearchPage> for SearchResults {
    fn from(page: SearchPage) -> SearchResults {
        SearchResults {
            items: page.hits.into_iter().map(SearchItem::from).collect(),
            next_cursor: page.next.map(String::from),
            stopped: page.stopped.map(|limit| match limit {
                SearchLimit::Hits => "items",
                SearchLimit::Bytes => "bytes",
                SearchLimit::Time => "time",
            }),
            commands: page.commands,
            bytes: page.bytes,
        }
    }
}

/// Search the commands and the output of all threads.
///
/// Commands are searched newest first. A page ends after `limit` commands that match, after 128 MiB of output or after
/// 2 seconds, whichever comes first; continue with its `next_cursor`. Of the output of a command, what is still kept is
/// searched; of a typed command, the last 1 MiB that its terminal printed.
#[utoipa::path(get, path = "/api/search", tag = "exec",
    operation_id = "commands.search", params(SearchQuery),
    responses((status = 200, description = "A page of commands that match", body = SearchResults)))]
async fn search(
    State(app): State<App>,
    Query(query): Query<SearchQuery>,
) -> Result<axum::Json<SearchResults>, Problem> {
    if query.q.is_empty() || query.q.len() > MAX_TEXT_BYTES {
        return Err(Problem::query("q", format!("must have 1 to {MAX_TEXT_BYTES} bytes")));
    }
    let limit = page::items(query.limit)?;
    let before = query.cursor.as_deref().map(str::parse::<CommandId>).transpose();
    let before = before.map_err(|_| Problem::query("cursor", "not a cursor of this list"))?;
    let thread = match &query.thread {
        Some(name) => Some(existing_thread(&app, name).await?),
        None => None,
    };
    let limits = SearchBudget {
        hits: usize::try_from(limit).unwrap_or(usize::MAX),
        bytes: MAX_SEARCH_BYTES,
        time: MAX_SEARCH_TIME,
    };
    let request = SearchRequest { text: query.q, thread, before, limits };
    Ok(axum::Json(app.terminals.search(request).await?.into()))
}

async fn existing_thread(app: &App, name: &str) -> Result<ThreadId, Problem> {
    let missing = || Problem::missing("thread", name);
    let id: ThreadId = name.parse().map_err(|_| missing())?;
    app.store.thread(&id).await?.ok_or_else(missing)?;
    Ok(id)
}
