//! Lists: as a table, as JSON, only their ids, and again when they change.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde_json::Value;

use super::{
    client::ApiClient,
    raw,
    reconnect::Reconnect,
    show::{Column, PrintArgs, cell, table},
};

/// The time between two requests for a list that is watched.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";

/// How a list is printed.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    pub(super) print: PrintArgs,
    /// Print only the first column, without a title
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Print the list again when it changes, until interrupted
    #[arg(short, long)]
    watch: bool,
}

/// The columns of a list, the first of which identifies an item.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table<'a> {
    pub(super) columns: &'a [Column],
    /// Printed in place of an empty table.
    pub(super) empty: Option<&'a str>,
    /// Formats an item for people in place of a row.
    pub(super) item: Option<fn(&Value) -> String>,
}

impl<'a> Table<'a> {
    pub(super) fn new(columns: &'a [Column]) -> Table<'a> {
        Table { columns, empty: None, item: None }
    }
}

/// Where a list is printed.
#[derive(Debug, Clone, Copy)]
enum ListOutput {
    /// Columns and rows of a terminal.
    Screen(usize, usize),
    Pipe,
}

impl ListArgs {
    /// Prints the list that `read` returns. While it is watched, a server that restarts is waited for.
    pub(super) async fn show(
        self,
        table: Table<'_>,
        client: &ApiClient,
        read: impl AsyncFnMut() -> anyhow::Result<Vec<Value>>,
    ) -> anyhow::Result<()> {
        self.follow(table, Some(client), read).await
    }

    /// Prints the items of a path.
    pub(super) async fn show_path(
        self,
        table: Table<'_>,
        client: &ApiClient,
        path: &str,
        limit: usize,
    ) -> anyhow::Result<()> {
        self.show(table, client, async || client.list(path, limit).await).await
    }

    /// Prints a list that needs no server.
    pub(super) async fn show_local(
        self,
        table: Table<'_>,
        read: impl AsyncFnMut() -> anyhow::Result<Vec<Value>>,
    ) -> anyhow::Result<()> {
        self.follow(table, None, read).await
    }

    async fn follow(
        self,
        table: Table<'_>,
        client: Option<&ApiClient>,
        mut read: impl AsyncFnMut() -> anyhow::Result<Vec<Value>>,
    ) -> anyhow::Result<()> {
        if !self.watch {
            return self.print_once(table, &read().await?);
        }
        let mut reconnect = Reconnect::default();
        let mut shown = None;
        loop {
            match read().await {
                Ok(items) => {
                    reconnect.connected();
                    let output = output();
                    // On a screen, the relative times are kept up to date too.
                    let redraw = matches!(output, ListOutput::Screen(..)) && !self.print.json;
                    if redraw || shown.as_ref() != Some(&items) {
                        let text = self.text(table, &items, output);
                        let clear = if redraw { CLEAR_SCREEN } else { "" };
                        if write(&format!("{clear}{text}"))? == OutputReader::Gone {
                            return Ok(());
                        }
                        shown = Some(items);
                    }
                    tokio::time::sleep(WATCH_INTERVAL).await;
                }
                Err(error) => match client {
                    Some(client) => reconnect.pause(client, error).await?,
                    None => return Err(error),
                },
            }
        }
    }

    fn print_once(self, table: Table<'_>, items: &[Value]) -> anyhow::Result<()> {
        let output = match output() {
            // All rows: they can be scrolled.
            ListOutput::Screen(columns, _) => ListOutput::Screen(columns, usize::MAX),
            ListOutput::Pipe => ListOutput::Pipe,
        };
        write(&self.text(table, items, output))?;
        Ok(())
    }

    fn text(self, of: Table<'_>, items: &[Value], output: ListOutput) -> String {
        if self.print.json {
            let items = Value::from(items);
            return match (self.watch, output) {
                (false, ListOutput::Screen(..)) => format!("{items:#}\n"),
                _ => format!("{items}\n"),
            };
        }
        let id = of.columns.first().map_or("", |(_, pointer)| pointer);
        if self.quiet {
            return items.iter().map(|item| format!("{}\n", cell(item, id))).collect();
        }
        if let (true, Some(empty)) = (items.is_empty(), of.empty) {
            return format!("{empty}\n");
        }
        if let Some(format) = of.item {
            return items.iter().map(|item| format!("{}\n", format(item))).collect();
        }
        let mut rows = vec![of.columns.iter().map(|(title, _)| title.to_uppercase()).collect()];
        rows.extend(items.iter().map(|item| {
            of.columns.iter().map(|(_, pointer)| cell(item, pointer)).collect::<Vec<_>>()
        }));
        let ListOutput::Screen(columns, lines) = output else {
            return format!("{}\n", table(&rows, usize::MAX));
        };
        // The last line of the screen remains for the cursor, the one before it for what is left out.
        let room = lines.saturating_sub(2).max(1);
        let left_out = rows.len().saturating_sub(room);
        rows.truncate(room);
        let rest = if left_out > 0 { format!("… and {left_out} more\n") } else { String::new() };
        format!("{}\n{rest}", table(&rows, columns))
    }
}

/// Prints a list that is part of another answer.
pub(super) fn print(form: PrintArgs, table: Table<'_>, items: &[Value]) -> anyhow::Result<()> {
    ListArgs { print: form, quiet: false, watch: false }.print_once(table, items)
}

fn output() -> ListOutput {
    let size = io::stdout().is_terminal().then(raw::size).flatten();
    size.map_or(ListOutput::Pipe, |(columns, rows)| ListOutput::Screen(columns.into(), rows.into()))
}

/// Whether anyone still reads standard output.
#[derive(Debug, PartialEq, Eq)]
enum OutputReader {
    Present,
    Gone,
}

fn write(text: &str) -> io::Result<OutputReader> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(OutputReader::Present),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(OutputReader::Gone),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const COLUMNS: [Column; 2] = [("thread", "/id"), ("state", "/state")];

    fn args(json: bool, quiet: bool, watch: bool) -> ListArgs {
        ListArgs { print: PrintArgs { json }, quiet, watch }
    }

    #[test]
    fn a_list_is_a_table_json_or_ids() {
        let items = [json!({"id": "a", "state": "idle"}), json!({"id": "b", "state": null})];
        let of = Table::new(&COLUMNS);
        let text = |args: ListArgs, output| args.text(of, &items, output);
        let plain = args(false, false, false);
        assert_eq!(text(plain, ListOutput::Pipe), "THREAD  STATE\na       idle\nb       -\n");
        assert_eq!(text(args(false, true, false), ListOutput::Pipe), "a\nb\n");
        assert_eq!(text(args(true, false, true), ListOutput::Screen(80, 24)).lines().count(), 1);
        assert!(text(args(true, false, false), ListOutput::Screen(80, 24)).lines().count() > 1);
        let short = text(args(false, false, true), ListOutput::Screen(80, 4));
        assert_eq!(short, "THREAD  STATE\na       idle\n… and 1 more\n");
    }

    #[test]
    fn an_empty_table_may_say_what_to_do_and_an_empty_list_has_no_ids() {
        let of = Table { columns: &COLUMNS, empty: Some("no threads"), item: None };
        assert_eq!(args(false, false, false).text(of, &[], ListOutput::Pipe), "no threads\n");
        assert_eq!(args(false, true, false).text(of, &[], ListOutput::Pipe), "");
        assert_eq!(args(true, false, false).text(of, &[], ListOutput::Pipe), "[]\n");
    }
}
