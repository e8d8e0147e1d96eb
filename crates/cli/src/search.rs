//! `stead search`: finds a text in the commands and the output of all threads.

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use serde_json::Value;

use super::{
    client::{ApiClient, ServerArgs, escape},
    list::{ListArgs, Table},
    names,
    show::plain,
};

/// A search that takes longer shows its progress.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stead search 'connection refused'\n  \
    stead search --thread build error --limit 5\n\n\
    Prints the matching commands, newest first, with the first matching lines of their output.\n\
    `stead output COMMAND` prints the whole output; `--quiet` prints only the ids. Exits with 1 if nothing matches.")]
pub(super) struct SearchArgs {
    /// The text; upper and lower case are the same
    text: String,
    /// Only in this thread or sandbox
    #[arg(short, long, value_name = "NAME")]
    thread: Option<String>,
    /// Maximum number of commands
    #[arg(long, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    form: ListArgs,
    #[command(flatten)]
    target: ServerArgs,
}

pub(super) async fn search(args: SearchArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let mut path = format!("/api/search?q={}", escape(&args.text));
    if let Some(name) = &args.thread {
        let thread = names::thread(&client, name).await?;
        path.push_str(&format!("&thread={}", escape(&thread)));
    }
    let limit = args.limit.max(1);
    let columns = [("command", "/command_id")];
    let table = Table { columns: &columns, empty: None, item: Some(result) };
    let mut found = SearchHits::default();
    let read = async || {
        found = search_all(&client, &path, limit).await?;
        Ok(std::mem::take(&mut found.items))
    };
    args.form.show(table, &client, read).await?;
    if found.more {
        eprintln!(
            "stead: stopped at --limit {limit}; older commands were not searched, --limit {} \
             searches on",
            limit.saturating_mul(10)
        );
    } else if found.count == 0 {
        eprintln!("stead: no match in {} commands and their output", found.searched);
    }
    Ok(if found.count == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The result of a search.
#[derive(Default)]
struct SearchHits {
    items: Vec<Value>,
    count: usize,
    /// How many commands were searched.
    searched: u64,
    /// Whether older commands were not searched.
    more: bool,
}

async fn search_all(client: &ApiClient, path: &str, limit: usize) -> anyhow::Result<SearchHits> {
    let mut items: Vec<Value> = Vec::new();
    let (mut cursor, mut searched) = (None::<String>, 0);
    let progress = SearchProgress::new();
    loop {
        // A page ends at its time limit, too, so that there is something to show.
        let mut page = format!("{path}&limit={}", (limit - items.len()).min(1000));
        if let Some(cursor) = &cursor {
            page.push_str(&format!("&cursor={}", escape(cursor)));
        }
        let mut results = client.get(&page).await?;
        searched += results["commands"].as_u64().unwrap_or(0);
        if let Some(Value::Array(more)) = results.get_mut("items").map(Value::take) {
            items.extend(more);
        }
        cursor = results["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() || items.len() >= limit {
            break;
        }
        progress.show(searched);
    }
    progress.clear();
    Ok(SearchHits { count: items.len(), items, searched, more: cursor.is_some() })
}

/// Formats a command that matches, and below it the matching lines.
fn result(item: &Value) -> String {
    let text = |key: &str| plain(&item[key]);
    let status = match item["exit_code"].as_i64() {
        Some(code) => format!("exit {code}"),
        None => text("status"),
    };
    let mut shown = format!(
        "{}  {}  {}  {}\n  $ {}",
        text("thread_id"),
        text("created_at"),
        status,
        text("command_id"),
        text("command"),
    );
    for line in item["lines"].as_array().into_iter().flatten() {
        let stream = if line["stream"] == "stderr" { "!" } else { "|" };
        shown.push_str(&format!("\n  {stream} {}", plain(&line["text"])));
    }
    if item["more_lines"] == true {
        shown.push_str("\n  …");
    }
    shown
}

/// Says how far a long search is, on standard error.
struct SearchProgress {
    began: Instant,
    is_terminal: bool,
}

impl SearchProgress {
    fn new() -> SearchProgress {
        SearchProgress { began: Instant::now(), is_terminal: std::io::stderr().is_terminal() }
    }

    fn show(&self, searched: u64) {
        if self.is_terminal && self.began.elapsed() >= PROGRESS_AFTER {
            eprint!("\rsearched {searched} commands…");
            let _ = std::io::stderr().flush();
        }
    }

    fn clear(&self) {
        if self.is_terminal && self.began.elapsed() >= PROGRESS_AFTER {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_shows_where_it_is_and_its_lines() {
        let item = json!({
            "thread_id": "build", "created_at": "long ago", "exit_code": 2, "status": "finished",
            "command_id": "cmd_1", "command": "make\ntest", "more_lines": true,
            "lines": [
                {"stream": "stdout", "offset": 0, "text": "a\tb"},
                {"stream": "stderr", "offset": 9, "text": "bad\u{1b}[31m"},
            ],
        });
        assert_eq!(
            result(&item),
            "build  long ago  exit 2  cmd_1\n  $ make\\ntest\n  | a\\tb\n  ! bad\\u{1b}[31m\n  …"
        );
    }
}
