//! Tables and JSON on standard output.

use std::io::{self, IsTerminal, Write};

use jiff::Timestamp;
use serde_json::Value;
use vt::text_width;

/// No column is cut below this width.
const MIN_COLUMN_WIDTH: usize = 8;

/// How a response is printed.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct PrintArgs {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// A column: its title, and the JSON pointer to its value.
pub(super) type Column = (&'static str, &'static str);

impl PrintArgs {
    /// Prints one object, a field per line.
    pub(super) fn one(self, item: &Value) -> io::Result<()> {
        if self.json {
            return json(item);
        }
        let fields = item.as_object().into_iter().flatten();
        let rows: Vec<_> = fields.map(|(key, value)| vec![key.clone(), plain(value)]).collect();
        line(&table(&rows, usize::MAX))
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

/// Prints a JSON value on one line.
pub(super) fn json_line(value: &Value) -> io::Result<()> {
    line(&serde_json::to_string(value)?)
}

/// Prints a line. A reader that closed the pipe is not an error.
pub(super) fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Aligns rows in columns, two spaces apart. The widest columns are cut until a row fits into `limit`; the first
/// identifies a row and stays whole.
pub(super) fn table(rows: &[Vec<String>], limit: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| text_width(cell)).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..columns).map(width).collect();
    while widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1) > limit {
        match widths.iter_mut().skip(1).max() {
            Some(widest) if *widest > MIN_COLUMN_WIDTH => *widest -= 1,
            Some(_) | None => break,
        }
    }
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| fit(cell, *width));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Pads or cuts a cell.
fn fit(cell: &str, width: usize) -> String {
    let missing = |text: &str| " ".repeat(width.saturating_sub(text_width(text)));
    if text_width(cell) <= width {
        return format!("{cell}{}", missing(cell));
    }
    let cut = format!("{}…", start_of(cell, width.saturating_sub(1)));
    format!("{cut}{}", missing(&cut))
}

/// Returns the longest start of a text that fits into this many columns.
pub(super) fn start_of(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let too_wide = |(_, c): &(usize, char)| {
        used += text_width(c.encode_utf8(&mut [0; 4]));
        used > columns
    };
    text.char_indices().find(too_wide).map_or(text, |(end, _)| &text[..end])
}

/// Formats the value at a JSON pointer.
pub(super) fn cell(item: &Value, pointer: &str) -> String {
    plain(item.pointer(pointer).unwrap_or(&Value::Null))
}

/// Formats a value for people: relative times, no JSON. Control characters are escaped, so that a program
/// cannot control the terminal through them.
pub(super) fn plain(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => relative(text),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let shown = fields.iter().filter_map(|(key, value)| match value {
                Value::Null | Value::Bool(false) => None,
                Value::Bool(true) => Some(key.clone()),
                value => Some(format!("{key}={}", plain(value))),
            });
            shown.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    };
    let safe = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.chars().map(safe).collect()
}

/// Formats a timestamp relative to the current time; returns any other text unchanged.
pub(super) fn relative(text: &str) -> String {
    match text.parse::<Timestamp>() {
        Ok(time) => age(time.as_second() - Timestamp::now().as_second()),
        Err(_) => text.to_owned(),
    }
}

/// Formats a difference in seconds, which is negative for the past.
fn age(seconds: i64) -> String {
    let (count, unit) = match seconds.unsigned_abs() {
        0 => return "now".to_owned(),
        count @ ..60 => (count, "s"),
        count @ ..3600 => (count / 60, "min"),
        count @ ..86_400 => (count / 3600, "h"),
        count => (count / 86_400, "d"),
    };
    if seconds < 0 { format!("{count} {unit} ago") } else { format!("in {count} {unit}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_program_cannot_control_the_terminal() {
        assert_eq!(plain(&json!("a\x1b]0;x\x07b\n")), "a\\u{1b}]0;x\\u{7}b\\n");
        assert_eq!(cell(&json!({"a": {"b": 1}}), "/a/b"), "1");
        assert_eq!(cell(&json!({}), "/a"), "-");
        assert_eq!(plain(&json!(["x", 2])), "x, 2");
    }

    #[test]
    fn columns_line_up_and_fit() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["A", "B", "C"]), row(["é", "two", ""]), row(["longer", "x", "y"])];
        assert_eq!(table(&rows, usize::MAX), "A       B    C\né       two\nlonger  x    y");
        let rows = [row(["A", "B", "C"]), row(["x", "0123456789abcdef", "y"])];
        assert_eq!(table(&rows, 16), "A  B           C\nx  012345678…  y");
        assert_eq!(table(&rows, 1), "A  B         C\nx  0123456…  y");
    }

    #[test]
    fn an_id_is_never_cut_and_wide_characters_take_two_columns() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["ID", "TITLE", "S"]), row(["0123456789abcdef", "一二三四五六", "x"])];
        let fitted = "ID                TITLE     S\n0123456789abcdef  一二三…   x";
        assert_eq!(table(&rows, 28), fitted);
        assert_eq!(table(&rows, 1), fitted);
        assert_eq!(start_of("一二三", 3), "一");
        assert_eq!(start_of("ab", 3), "ab");
    }

    #[test]
    fn objects_and_times_are_readable() {
        let capabilities =
            json!({"hosted": true, "metrics": false, "pause": "memory", "price": null});
        assert_eq!(plain(&capabilities), "hosted, pause=memory");
        let check = |seconds, expected: &str| assert_eq!(age(seconds), expected);
        check(0, "now");
        check(-59, "59 s ago");
        check(-60, "1 min ago");
        check(-7_300, "2 h ago");
        check(172_800, "in 2 d");
        assert_eq!(relative("2000-01-01"), "2000-01-01");
        assert!(relative("2000-01-01T00:00:00Z").ends_with(" d ago"));
    }
}
