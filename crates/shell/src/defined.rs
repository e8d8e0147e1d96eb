//! Finds the functions that a shell text defines, for shells that cannot list their functions. A function
//! that is found may never have been defined, or may have been removed since; the shell itself reports
//! which of the names are functions.

use super::quote;

/// A function: its name, and the text that defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    pub name: Vec<u8>,
    /// The text from the name to the end of the body.
    pub source: Vec<u8>,
}

/// Returns the functions of all texts, in order. Of several functions with the same name, the last one is
/// returned.
pub fn functions<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Vec<Function> {
    let mut found: Vec<Function> = Vec::new();
    for function in texts.into_iter().flat_map(definitions) {
        found.retain(|known| known.name != function.name);
        found.push(function);
    }
    found
}

fn definitions(text: &[u8]) -> Vec<Function> {
    let mut found = Vec::new();
    let mut scan = TextScan::new(text);
    while scan.at < text.len() {
        let start = scan.at;
        let definition = if scan.starts_command { definition(text, start) } else { Ok(None) };
        // After an unclosed definition nothing can be found, and trying takes quadratic time.
        let Ok(definition) = definition else { break };
        if let Some(end) = definition {
            let name = text[start..].iter().take_while(|byte| is_word(**byte));
            let name: Vec<u8> = name.copied().collect();
            found.push(Function { name, source: text[start..end].to_vec() });
            scan.at = end;
            scan.starts_command = false;
        } else {
            scan.step();
        }
    }
    found
}

/// A definition without an end.
struct Unclosed;

/// Returns the end of the definition that begins at `start`, if there is one.
fn definition(text: &[u8], start: usize) -> Result<Option<usize>, Unclosed> {
    let name = text[start..].iter().take_while(|byte| is_word(**byte)).count();
    if !quote::is_name(&text[start..start + name]) {
        return Ok(None);
    }
    let mut at = blanks(text, start + name);
    for parenthesis in [b'(', b')'] {
        if text.get(at) != Some(&parenthesis) {
            return Ok(None);
        }
        at = blanks(text, at + 1);
    }
    while text.get(at) == Some(&b'\n') {
        at = blanks(text, at + 1);
    }
    let closing = match text.get(at) {
        Some(b'{') => b'}',
        Some(b'(') => b')',
        _ => return Ok(None),
    };
    let mut scan = TextScan::new(text);
    scan.at = at + 1;
    let mut depth = 1;
    while scan.at < text.len() {
        let byte = text[scan.at];
        let word = scan.starts_command && is_end(text.get(scan.at + 1));
        match (byte, closing) {
            (b'(', b')') => depth += 1,
            (b')', b')') => depth -= 1,
            (b'{', b'}') if word => depth += 1,
            (b'}', b'}') if word => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok(Some(scan.at + 1));
        }
        scan.step();
    }
    Err(Unclosed)
}

/// Walks over shell text, and over a quoted part in one step.
struct TextScan<'a> {
    text: &'a [u8],
    at: usize,
    /// A command may begin here.
    starts_command: bool,
    /// A word begins here.
    starts_word: bool,
    /// The delimiters of here-documents that begin after this line.
    documents: Vec<Vec<u8>>,
}

impl<'a> TextScan<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, starts_command: true, starts_word: true, documents: Vec::new() }
    }

    /// Advances by one byte, or over a whole word, comment or quoted part.
    fn step(&mut self) {
        let (text, at) = (self.text, self.at);
        let (was_word, was_command) = (self.starts_word, self.starts_command);
        (self.starts_word, self.starts_command) = (false, false);
        match text[at] {
            b'#' if was_word => {
                self.at = text[at..]
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .map_or(text.len(), |n| at + n);
                self.starts_command = was_command;
            }
            b'\n' => {
                self.at = at + 1;
                self.skip_documents();
                (self.starts_word, self.starts_command) = (true, true);
            }
            b';' | b'&' | b'|' | b'(' | b')' => {
                self.at = at + 1;
                (self.starts_word, self.starts_command) = (true, true);
            }
            b' ' | b'\t' => {
                self.at = at + 1;
                (self.starts_word, self.starts_command) = (true, was_command);
            }
            b'<' if text[at..].starts_with(b"<<") => self.document(),
            b'{' | b'}' if was_command && is_end(text.get(at + 1)) => {
                self.at = at + 1;
                (self.starts_word, self.starts_command) = (true, true);
            }
            byte if is_word(byte) && was_command => {
                let length = text[at..].iter().take_while(|byte| is_word(**byte)).count();
                self.at = at + length;
                // The keywords that a command may follow without a separator.
                self.starts_command = matches!(
                    &text[at..at + length],
                    b"then" | b"do" | b"else" | b"elif" | b"if" | b"while" | b"until"
                );
            }
            _ => self.at = quote::skip(text, at),
        }
    }

    fn document(&mut self) {
        let mut at = self.at + 2;
        if self.text.get(at) == Some(&b'-') {
            at += 1;
        }
        at = blanks(self.text, at);
        let (end, taken) = quote::word(&self.text[at..]);
        let cut = end.iter().position(|byte| matches!(byte, b';' | b'&' | b'|' | b'<' | b'>'));
        self.at = at + if cut.is_some() { cut.unwrap_or(0) } else { taken };
        self.documents.push(end[..cut.unwrap_or(end.len())].to_vec());
    }

    fn skip_documents(&mut self) {
        for end in std::mem::take(&mut self.documents) {
            while self.at < self.text.len() {
                let line = &self.text[self.at..];
                let length = line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len());
                self.at = (self.at + length + 1).min(self.text.len());
                let line = &line[..length];
                let tabs = line.iter().take_while(|byte| **byte == b'\t').count();
                if line == end || line[tabs..] == end[..] {
                    break;
                }
            }
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_end(byte: Option<&u8>) -> bool {
    byte.is_none_or(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b')' | b'('))
}

fn blanks(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let found = functions([text.as_bytes()]);
        let found: Vec<(String, String)> = found
            .into_iter()
            .map(|it| (String::from_utf8(it.name).unwrap(), String::from_utf8(it.source).unwrap()))
            .collect();
        let expected: Vec<(String, String)> =
            expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn definitions_are_found_wherever_a_command_may_be() {
        check("f() { echo hi; }", &[("f", "f() { echo hi; }")]);
        check(
            "x=1; f () (echo hi); g()\n{\n:\n}\n",
            &[("f", "f () (echo hi)"), ("g", "g()\n{\n:\n}")],
        );
        check("if true; then f() { :; }; fi", &[("f", "f() { :; }")]);
        check("echo 'f() { :; }' \"g() { :; }\" # h() { :; }", &[]);
        check("echo f() { :; }", &[]);
        check(
            "f() { { a; }; echo } \"}\" ${x} '}'; }; b",
            &[("f", "f() { { a; }; echo } \"}\" ${x} '}'; }")],
        );
        check("f() {\ncat <<E\n}\nE\n}\nf", &[("f", "f() {\ncat <<E\n}\nE\n}")]);
        check(
            "f() { case $1 in a) echo a;; esac; }; g() { $(echo }); }",
            &[("f", "f() { case $1 in a) echo a;; esac; }"), ("g", "g() { $(echo }); }")],
        );
        check("f() { one; }; f() { two; }", &[("f", "f() { two; }")]);
        check("f() { never ends", &[]);
        assert_eq!(functions([b"f(){ $(".repeat(100_000).as_slice()]), []);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_scanner_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = functions([bytes.as_slice()]);
        }

        #[test]
        fn no_shell_like_text_makes_the_scanner_panic(text in "[f(){};\n <'\"$`#E-]{0,40}") {
            let _ = functions([text.as_bytes()]);
        }
    }
}
