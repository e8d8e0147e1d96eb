//! Finds a text in the lines of output, as a person reads them: without control sequences, and with what a carriage
//! return leaves on the screen apart from what it overwrites. Pure.

use regex::bytes::{Regex, RegexBuilder};

/// The rest of a longer line is searched as a line of its own.
const MAX_LINE_BYTES: usize = 64 << 10;
/// The characters of a line that are returned.
const MAX_SHOWN_CHARS: usize = 300;
/// The characters that are returned before the match, if the line is longer than that.
const SHOWN_BEFORE: usize = 80;

/// A text to search for, ignoring case.
#[derive(Debug, Clone)]
pub struct Needle(Regex);

impl Needle {
    pub fn new(text: &str) -> Needle {
        let pattern = RegexBuilder::new(&regex::escape(text)).case_insensitive(true).build();
        Needle(pattern.expect("an escaped text is a small pattern"))
    }

    pub fn is_in(&self, text: &str) -> bool {
        self.0.is_match(text.as_bytes())
    }
}

/// A line that contains the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLine {
    /// The offset of the line's first byte in its stream.
    pub offset: u64,
    /// The line without control sequences; of a long one the part around the match.
    pub text: String,
}

/// Searches consecutive pieces of a stream, up to a number of lines.
pub struct LineFinder<'a> {
    needle: &'a Needle,
    max: usize,
    /// The start of a line whose end was not seen yet.
    line: Vec<u8>,
    /// The offset of that line.
    offset: u64,
    found: Vec<FoundLine>,
}

impl<'a> LineFinder<'a> {
    pub fn new(needle: &'a Needle, max: usize) -> LineFinder<'a> {
        LineFinder { needle, max, line: Vec::new(), offset: 0, found: Vec::new() }
    }

    /// Whether as many lines were found as may be.
    pub fn is_full(&self) -> bool {
        self.found.len() >= self.max
    }

    /// Searches the bytes at `offset`. Bytes that do not continue the ones before start a line.
    pub fn feed(&mut self, offset: u64, bytes: &[u8]) {
        if offset != self.offset + self.line.len() as u64 {
            self.end_line();
            self.offset = offset;
        }
        let mut skipped = 0..0;
        if let Some(first) = bytes.iter().position(|byte| *byte == b'\n')
            && let Some(last) = bytes.iter().rposition(|byte| *byte == b'\n')
            && !self.may_match(&bytes[first + 1..=last])
        {
            skipped = first + 1..last + 1;
        }
        self.feed_lines(&bytes[..skipped.start]);
        // The line before is complete, so what is skipped starts at `self.offset`.
        self.offset += skipped.len() as u64;
        self.feed_lines(&bytes[skipped.end..]);
    }

    /// Whether a line of whole lines may match. Reading all at once is much faster than line by line, but only
    /// possible without control sequences.
    fn may_match(&self, lines: &[u8]) -> bool {
        let is_control =
            |byte: &u8| byte.is_ascii_control() && !matches!(byte, b'\t' | b'\n' | b'\r');
        lines.iter().any(is_control) || self.needle.0.is_match(lines)
    }

    fn feed_lines(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.is_full() {
                return;
            }
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") || self.line.len() >= MAX_LINE_BYTES {
                self.end_line();
            }
        }
    }

    /// Returns the lines that were found.
    pub fn finish(mut self) -> Vec<FoundLine> {
        self.end_line();
        self.found
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let offset = self.offset;
        self.offset += line.len() as u64;
        if line.is_empty() || self.is_full() {
            return;
        }
        for shown in plain(&line).split(|byte| *byte == b'\r') {
            if let Some(found) = self.needle.0.find(shown) {
                let text = excerpt(shown, found.start());
                self.found.push(FoundLine { offset, text });
                return;
            }
        }
    }
}

/// Returns the line without control sequences and control characters, except tabs and carriage returns.
fn plain(line: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(line.len());
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            0x1b => skip_sequence(&mut bytes),
            b'\t' | b'\r' => text.push(byte),
            0x00..=0x1f | 0x7f => {}
            _ => text.push(byte),
        }
    }
    text
}

/// Skips the rest of a control sequence that follows an escape character.
fn skip_sequence(bytes: &mut std::iter::Peekable<impl Iterator<Item = u8>>) {
    match bytes.next() {
        Some(b'[') => {
            bytes.find(|byte| (0x40..=0x7e).contains(byte));
        }
        // A string, up to BEL or ESC \.
        Some(b']' | b'P' | b'X' | b'^' | b'_') => {
            while let Some(byte) = bytes.next() {
                match byte {
                    0x07 => return,
                    0x1b => {
                        bytes.next_if_eq(&b'\\');
                        return;
                    }
                    _ => {}
                }
            }
        }
        Some(0x20..=0x2f) => {
            bytes.find(|byte| (0x30..=0x7e).contains(byte));
        }
        Some(_) | None => {}
    }
}

/// Returns a line, or the part around the match if it is long.
fn excerpt(line: &[u8], at: usize) -> String {
    let whole = String::from_utf8_lossy(line);
    let length = whole.chars().count();
    if length <= MAX_SHOWN_CHARS {
        return whole.into_owned();
    }
    let before = String::from_utf8_lossy(&line[..at]).chars().count();
    let skipped = before.saturating_sub(SHOWN_BEFORE);
    let mut shown: String = whole.chars().skip(skipped).take(MAX_SHOWN_CHARS).collect();
    if length > skipped + MAX_SHOWN_CHARS {
        shown.push('…');
    }
    if skipped > 0 {
        shown.insert(0, '…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str, pieces: &[(u64, &str)]) -> Vec<(u64, String)> {
        let needle = Needle::new(text);
        let mut finder = LineFinder::new(&needle, 3);
        pieces.iter().for_each(|(offset, bytes)| finder.feed(*offset, bytes.as_bytes()));
        finder.finish().into_iter().map(|line| (line.offset, line.text)).collect()
    }

    fn check(text: &str, pieces: &[(u64, &str)], expected: &[(u64, &str)]) {
        let found = find(text, pieces);
        let found: Vec<_> = found.iter().map(|(offset, text)| (*offset, text.as_str())).collect();
        assert_eq!(found, expected, "{text} in {pieces:?}");
    }

    #[test]
    fn a_text_is_found_as_a_person_reads_it() {
        check("fish", &[(0, "a\nred FISH\nb\n")], &[(2, "red FISH")]);
        check("fish", &[(0, "a fi"), (4, "sh\n")], &[(0, "a fish")]);
        check("fish", &[(0, "\x1b[31mfi\x1b[1msh\x1b[m\r\n")], &[(0, "fish")]);
        check("fish", &[(0, "\x1b]0;fish\x07fi\x1b(Bsh")], &[(0, "fish")]);
        check("title", &[(0, "\x1b]0;title\x1b\\text")], &[]);
        check("10%", &[(0, "10% a\r100% b\n")], &[(0, "10% a")]);
        check("a.c", &[(0, "abc\na.c\n")], &[(4, "a.c")]);
        check("ÄRGER", &[(0, "ärger\n")], &[(0, "ärger")]);
        check("x", &[(0, "x\nx\nx\nx\n")], &[(0, "x"), (2, "x"), (4, "x")]);
    }

    #[test]
    fn text_on_both_sides_of_a_gap_is_not_joined() {
        check("fish", &[(0, "fi"), (100, "sh\nfish")], &[(103, "fish")]);
    }

    #[test]
    fn offsets_are_right_after_lines_that_were_skipped() {
        let lines = "a\n".repeat(100);
        check("fish", &[(0, "x fi"), (4, &format!("sh\n{lines}y"))], &[(0, "x fish")]);
        let pieces =
            [(0, &*format!("x\n{lines}fi")), (204, &*format!("sh\n{lines}fi")), (409, "sh\n")];
        check("fish", &pieces, &[(202, "fish"), (407, "fish")]);
    }

    #[test]
    fn the_part_of_a_long_line_around_the_match_is_returned() {
        let line = format!("{}needle{}", "a".repeat(500), "b".repeat(500));
        let found = find("needle", &[(7, &line)]);
        let shown = format!("…{}needle{}…", "a".repeat(80), "b".repeat(214));
        assert_eq!(found, [(7, shown)]);
        let line = format!("needle{}", "é".repeat(500));
        let found = find("needle", &[(0, &line)]);
        assert_eq!(found, [(0, format!("needle{}…", "é".repeat(294)))]);
    }
}
