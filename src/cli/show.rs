//! Tables and JSON on standard output.

use std::io::{self, IsTerminal, Write};

use serde_json::Value;

/// How an answer is shown.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Form {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// A column: its title and where its value is.
pub(super) type Column = (&'static str, &'static str);

impl Form {
    /// Prints a list.
    pub(super) fn list(self, items: &[Value], columns: &[Column]) -> io::Result<()> {
        if self.json {
            return json(&Value::from(items));
        }
        let mut rows = vec![columns.iter().map(|(title, _)| title.to_uppercase()).collect()];
        for item in items {
            rows.push(columns.iter().map(|(_, pointer)| cell(item, pointer)).collect());
        }
        line(&table(&rows))
    }

    /// Prints one thing.
    pub(super) fn one(self, item: &Value) -> io::Result<()> {
        if self.json {
            return json(item);
        }
        let fields = item.as_object().into_iter().flatten();
        let rows: Vec<_> = fields.map(|(key, value)| vec![key.clone(), plain(value)]).collect();
        line(&table(&rows))
    }
}

/// Prints a JSON value.
pub(super) fn json(value: &Value) -> io::Result<()> {
    let text = if io::stdout().is_terminal() {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value)
    };
    line(&text?)
}

/// Prints a line. A reader that went away is not an error of ours.
pub(super) fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Rows in columns, two spaces apart; the last column as wide as it likes.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn cell(item: &Value, pointer: &str) -> String {
    plain(item.pointer(pointer).unwrap_or(&Value::Null))
}

/// A value in words. Control characters are shown, never sent to the terminal.
fn plain(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    };
    let safe = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.chars().map(safe).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_program_chose_cannot_drive_the_terminal() {
        assert_eq!(plain(&json!("a\x1b]0;x\x07b\n")), "a\\u{1b}]0;x\\u{7}b\\n");
        assert_eq!(cell(&json!({"a": {"b": 1}}), "/a/b"), "1");
        assert_eq!(cell(&json!({}), "/a"), "-");
        assert_eq!(plain(&json!(["x", 2])), "x, 2");
    }

    #[test]
    fn columns_line_up() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["A", "B", "C"]), row(["é", "two", ""]), row(["longer", "x", "y"])];
        assert_eq!(table(&rows), "A       B    C\né       two\nlonger  x    y");
    }
}
