//! The part of YAML that kubeconfig files use: mappings, sequences and scalars in block style, and JSON.
//!
//! Scalars are strings, except `null`, `true` and `false`. Anchors, aliases, tags and other flow collections than
//! those of JSON are errors, never read as something else.

use serde_json::{Map, Value};

/// The maximum depth of nested collections.
const MAX_DEPTH: usize = 32;

/// A text that is not in this part of YAML.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub(super) struct YamlError {
    line: usize,
    reason: &'static str,
}

/// Parses a document, which may also be JSON.
pub(super) fn parse(text: &str) -> Result<Value, YamlError> {
    if let Ok(json) = serde_json::from_str(text) {
        return Ok(json);
    }
    let lines = text.lines().map(|line| {
        let line = line.trim_end();
        let content = line.trim_start_matches(' ');
        (line.len() - content.len(), content.to_owned())
    });
    let mut reader = YamlReader { lines: lines.collect(), at: 0 };
    if reader.peek().is_some_and(|(_, content)| content == "---") {
        reader.at += 1;
    }
    let Some((indent, _)) = reader.peek() else { return Ok(Value::Null) };
    let value = reader.block(indent, 0)?;
    match reader.peek() {
        None => Ok(value),
        Some((_, "---" | "...")) => Err(reader.error("only one document is supported")),
        Some(_) => Err(reader.error("the indentation does not match the lines above")),
    }
}

struct YamlReader {
    /// The indentation and the content of each line.
    lines: Vec<(usize, String)>,
    at: usize,
}

impl YamlReader {
    /// Returns the next line that is neither empty nor a comment, and skips those before it.
    fn peek(&mut self) -> Option<(usize, &str)> {
        let skipped =
            |(_, content): &(usize, String)| content.is_empty() || content.starts_with('#');
        while self.lines.get(self.at).is_some_and(skipped) {
            self.at += 1;
        }
        self.lines.get(self.at).map(|(indent, content)| (*indent, content.as_str()))
    }

    fn error(&self, reason: &'static str) -> YamlError {
        YamlError { line: self.at + 1, reason }
    }

    /// Parses the mapping or sequence whose lines have this indentation.
    fn block(&mut self, indent: usize, depth: usize) -> Result<Value, YamlError> {
        if depth > MAX_DEPTH {
            return Err(self.error("too deeply nested"));
        }
        match self.peek() {
            Some((_, content)) if is_item(content) => self.sequence(indent, depth),
            Some((_, content)) if key_of(content).is_some() => self.mapping(indent, depth),
            Some((_, content)) => {
                let content = content.to_owned();
                self.scalar(&content, indent)
            }
            None => Ok(Value::Null),
        }
    }

    fn sequence(&mut self, indent: usize, depth: usize) -> Result<Value, YamlError> {
        let mut items = Vec::new();
        while let Some((found, content)) = self.peek() {
            if found != indent || !is_item(content) {
                break;
            }
            let rest = content[1..].trim_start().to_owned();
            if rest.is_empty() {
                self.at += 1;
                items.push(self.nested(indent + 1, depth)?);
                continue;
            }
            // The rest of the line is the first line of the item.
            let inner = indent + content.len() - rest.len();
            self.lines[self.at] = (inner, rest);
            items.push(self.block(inner, depth + 1)?);
        }
        Ok(Value::Array(items))
    }

    fn mapping(&mut self, indent: usize, depth: usize) -> Result<Value, YamlError> {
        let mut entries = Map::new();
        while let Some((found, content)) = self.peek() {
            if found != indent || is_item(content) || matches!(content, "---" | "...") {
                break;
            }
            let Some((key, rest)) = key_of(content) else {
                return Err(self.error("expected `key: value`"));
            };
            if entries.contains_key(&key) {
                return Err(self.error("a key is repeated"));
            }
            let value = if rest.is_empty() {
                self.at += 1;
                // A sequence may have the indentation of its key.
                match self.peek() {
                    Some((next, content)) if next == indent && is_item(content) => {
                        self.sequence(indent, depth + 1)?
                    }
                    _ => self.nested(indent + 1, depth)?,
                }
            } else {
                self.scalar(&rest, indent + 1)?
            };
            entries.insert(key, value);
        }
        Ok(Value::Object(entries))
    }

    /// Parses what is indented at least this far, or nothing.
    fn nested(&mut self, least: usize, depth: usize) -> Result<Value, YamlError> {
        match self.peek() {
            Some((indent, _)) if indent >= least => self.block(indent, depth + 1),
            _ => Ok(Value::Null),
        }
    }

    /// Parses a scalar that begins in the current line. Further lines of it are indented at least this far.
    fn scalar(&mut self, first: &str, least: usize) -> Result<Value, YamlError> {
        if let Some(header) = first.strip_prefix('|') {
            return self.literal(header, least, "\n");
        }
        if let Some(header) = first.strip_prefix('>') {
            return self.literal(header, least, " ");
        }
        let mut text = first.to_owned();
        self.at += 1;
        let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
        while !quote.is_some_and(|quote| is_closed(&text, quote)) {
            match self.peek() {
                Some((indent, more)) if indent >= least && !is_opening(&text) => {
                    if quote.is_none() && key_of(more).is_some() {
                        return Err(self.error("the indentation does not match the lines above"));
                    }
                    text = format!("{text} {more}");
                    self.at += 1;
                }
                _ => break,
            }
        }
        let reason = match text.as_bytes().first() {
            Some(b'"' | b'\'') => match unquoted(&text) {
                Some(value) => return Ok(Value::String(value)),
                None => "a quoted text does not end, or has an unknown escape",
            },
            Some(b'{' | b'[') => match serde_json::from_str(&text) {
                Ok(value) => return Ok(value),
                Err(_) => "a collection in this style must be JSON",
            },
            Some(b'&' | b'*' | b'!' | b'%' | b'@' | b'`') => {
                "anchors, aliases and tags are not supported"
            }
            _ => return Ok(plain(&text)),
        };
        self.at -= 1;
        Err(self.error(reason))
    }

    /// Parses the lines of a literal or folded scalar.
    fn literal(&mut self, header: &str, least: usize, separator: &str) -> Result<Value, YamlError> {
        if !matches!(header, "" | "-" | "+") {
            return Err(self.error("an indentation indicator is not supported"));
        }
        self.at += 1;
        let mut lines: Vec<String> = Vec::new();
        let mut base = None;
        while let Some((indent, content)) = self.lines.get(self.at) {
            if content.is_empty() {
                lines.push(String::new());
            } else if *indent >= least {
                let base = *base.get_or_insert(*indent);
                lines.push(format!("{}{content}", " ".repeat(indent.saturating_sub(base))));
            } else {
                break;
            }
            self.at += 1;
        }
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        let end = if header == "-" || lines.is_empty() { "" } else { "\n" };
        Ok(Value::String(lines.join(separator) + end))
    }
}

fn is_item(content: &str) -> bool {
    content == "-" || content.starts_with("- ")
}

/// Whether a text begins a flow collection, which has to end in its line.
fn is_opening(text: &str) -> bool {
    text.starts_with(['{', '['])
}

/// Splits `key: value`. The value is empty if it follows in other lines, or is a comment.
fn key_of(content: &str) -> Option<(String, String)> {
    let (key, rest) = match content.chars().next()? {
        quote @ ('"' | '\'') => {
            let end = content[1..].find(quote)? + 2;
            (unquoted(&content[..end])?, content[end..].trim_start().strip_prefix(':')?)
        }
        _ => {
            let end = content.find(": ").or_else(|| content.strip_suffix(':').map(str::len))?;
            (content[..end].trim_end().to_owned(), &content[end + 1..])
        }
    };
    let rest = rest.trim_start();
    Some((key, if rest.starts_with('#') { String::new() } else { rest.to_owned() }))
}

/// Whether the text that begins with this quote also ends with it, apart from a comment.
fn is_closed(text: &str, quote: char) -> bool {
    end_of_quoted(text, quote).is_some()
}

fn end_of_quoted(text: &str, quote: char) -> Option<usize> {
    let mut inner = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = inner.next() {
        if c == '\\' && quote == '"' {
            inner.next();
        } else if c == quote {
            // A single quote is escaped by another one.
            if quote == '\'' && inner.next_if(|(_, c)| *c == '\'').is_some() {
                continue;
            }
            return Some(at + 1);
        }
    }
    None
}

fn unquoted(text: &str) -> Option<String> {
    let quote = text.chars().next()?;
    let end = end_of_quoted(text, quote)?;
    let rest = text[end..].trim_start();
    if !rest.is_empty() && !rest.starts_with('#') {
        return None;
    }
    match quote {
        '\'' => Some(text[1..end - 1].replace("''", "'")),
        _ => serde_json::from_str(&text[..end]).ok(),
    }
}

fn plain(text: &str) -> Value {
    let text = text.split(" #").next().unwrap_or_default().trim_end();
    match text {
        "" | "~" | "null" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_is_parsed() {
        let text = "---\n# a comment\na: 1 # one\nb:\n- x: 'it''s'\n  y: \"a\\nb: #c\"\n-   z\n-\n    k: v\n\
                    c: {}\nd: [\"e\", 1]\nempty:\nnothing: null\nyes: true\nurl: https://h:1/p#x\nwords: one two\n  three\n\
                    text: |\n  first\n    second\n\n  third\nfolded: >-\n  a\n  b\n'q': w\n";
        let expected = json!({
            "a": "1", "b": [{"x": "it's", "y": "a\nb: #c"}, "z", {"k": "v"}], "c": {}, "d": ["e", 1],
            "empty": null, "nothing": null, "yes": true, "url": "https://h:1/p#x",
            "words": "one two three", "text": "first\n  second\n\nthird\n", "folded": "a b", "q": "w",
        });
        assert_eq!(parse(text).unwrap(), expected);
        assert_eq!(parse("{\"a\": [1]}").unwrap(), json!({"a": [1]}));
        assert_eq!(parse("").unwrap(), Value::Null);
    }

    #[test]
    fn what_is_not_supported_is_an_error_with_its_line() {
        let check = |text: &str, line: usize, part: &str| {
            let error = parse(text).unwrap_err();
            assert!(error.line == line && error.reason.contains(part), "{text:?}: {error}");
        };
        check("a: 1\nb: &x 2", 2, "anchors");
        check("a: *x", 1, "anchors");
        check("a: !!binary aGk=", 1, "tags");
        check("a: {b: c}", 1, "JSON");
        check("a: 'open", 1, "does not end");
        check("a: 1\na: 2", 2, "repeated");
        check("a:\n    b: 1\n  c: 2", 3, "indentation");
        check("a: 1\n  b: 2", 2, "indentation");
        check("a: 1\n---\nb: 2", 2, "one document");
        check(&format!("{}x", "- ".repeat(100)), 1, "deeply");
    }
}
