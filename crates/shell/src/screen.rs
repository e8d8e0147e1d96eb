//! The copy of a command's output on the screen: bounded, with line ends for a raw terminal, and without
//! sequences that would make the emulator answer or change modes without the shell's knowledge.

/// How many bytes of a command's output are copied to the screen.
const MAX_COPIED_BYTES: u64 = 64 << 10;

/// How many bytes of a command's text are shown.
const MAX_ECHOED_BYTES: usize = 8 << 10;

/// How many bytes of a drawn prompt are remembered.
const MAX_PROMPT_BYTES: usize = 4 << 10;

/// How many printed bytes a driver holds back at most: a prompt, one that is redrawn, and the start of a sequence.
pub const MAX_HELD_BYTES: usize = 3 * MAX_PROMPT_BYTES;

/// The state of a parser that recognizes whole escape sequences, so that they can be omitted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Within {
    #[default]
    Text,
    Escape,
    /// After `ESC [`, up to the final byte.
    Csi,
    /// In an OSC, DCS, APC, PM or SOS string, up to BEL or ST.
    String,
    StringEscape,
    /// After an escape with intermediate bytes, such as a charset.
    Intermediate,
}

/// The state of the copy.
#[derive(Debug, Default)]
pub struct ScreenCopy {
    shown: u64,
    hidden: u64,
    streams: [Filter; 2],
}

#[derive(Debug, Default)]
struct Filter {
    within: Within,
    /// The parameters of the current CSI sequence.
    parameters: Vec<u8>,
}

impl ScreenCopy {
    /// Returns the bytes to show for the next `bytes` of a stream (0 or 1).
    pub fn take(&mut self, stream: usize, bytes: &[u8]) -> Vec<u8> {
        let room = usize::try_from(MAX_COPIED_BYTES.saturating_sub(self.shown)).unwrap_or(0);
        let taken = bytes.len().min(room);
        self.shown += taken as u64;
        self.hidden += (bytes.len() - taken) as u64;
        let mut shown = Vec::with_capacity(taken + taken / 16);
        self.streams[stream].filter(&bytes[..taken], &mut shown);
        shown
    }

    /// Returns the notice to show at the end if output was omitted.
    pub fn end(&self) -> Vec<u8> {
        if self.hidden == 0 {
            return Vec::new();
        }
        format!("\x1b[0m\r\n\x1b[2m[… {} bytes not shown]\x1b[0m\r\n", self.hidden).into_bytes()
    }
}

impl Filter {
    fn filter(&mut self, bytes: &[u8], shown: &mut Vec<u8>) {
        for &byte in bytes {
            self.within = match self.within {
                Within::Text => match byte {
                    0x1b => Within::Escape,
                    b'\n' => {
                        shown.extend_from_slice(b"\r\n");
                        Within::Text
                    }
                    // ENQ requests an answer; SO and SI change the charset.
                    0 | 5 | 14 | 15 => Within::Text,
                    other => {
                        shown.push(other);
                        Within::Text
                    }
                },
                Within::Escape => match byte {
                    b'[' => {
                        self.parameters.clear();
                        Within::Csi
                    }
                    b']' | b'P' | b'X' | b'^' | b'_' => Within::String,
                    b' '..=b'/' => Within::Intermediate,
                    0x1b => Within::Escape,
                    _ => Within::Text,
                },
                Within::Intermediate => match byte {
                    b' '..=b'/' => Within::Intermediate,
                    0x1b => Within::Escape,
                    _ => Within::Text,
                },
                Within::Csi => match byte {
                    0x20..=0x3f if self.parameters.len() < 64 => {
                        self.parameters.push(byte);
                        Within::Csi
                    }
                    0x20..=0x3f => Within::Csi,
                    0x1b => Within::Escape,
                    0x40..=0x7e => {
                        self.sequence(byte, shown);
                        Within::Text
                    }
                    _ => Within::Csi,
                },
                Within::String => match byte {
                    7 => Within::Text,
                    0x1b => Within::StringEscape,
                    _ => Within::String,
                },
                Within::StringEscape => match byte {
                    b'\\' => Within::Text,
                    0x1b => Within::StringEscape,
                    _ => Within::String,
                },
            };
        }
    }

    /// Keeps colours and the erasing of a line, which progress bars and test reports need.
    fn sequence(&mut self, last: u8, shown: &mut Vec<u8>) {
        let plain = self.parameters.iter().all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':'));
        if plain && matches!(last, b'm' | b'K') {
            shown.extend_from_slice(b"\x1b[");
            shown.append(&mut self.parameters);
            shown.push(last);
        }
    }
}

/// The notice for a shell that starts without start-up files, because the previous shell failed.
pub const BARE_SHELL_NOTICE: &[u8] =
    b"\r\n\x1b[2m[the shell did not come to its prompt; this one has no start-up files]\x1b[0m\r\n";

/// Returns the notice that a shell exited and was replaced.
pub fn restarted(code: Option<i32>, signal: Option<i32>) -> Vec<u8> {
    let how = match (code, signal) {
        (_, Some(signal)) => format!("was ended by signal {signal}"),
        (Some(code), None) => format!("exited with code {code}"),
        (None, None) => "ended".to_owned(),
    };
    format!("\x1b[0m\r\n\x1b[2m[the shell {how}; a new shell continues from its state]\x1b[0m\r\n")
        .into_bytes()
}

/// Returns the notice that a new shell cannot start in the directory of the previous shell.
pub fn moved(from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut shown = b"\r\n\x1b[2m[".to_vec();
    let mut filter = Filter::default();
    filter.filter(from, &mut shown);
    shown.extend_from_slice(b" is gone; the shell is in ");
    filter.filter(to, &mut shown);
    shown.extend_from_slice(b"]\x1b[0m\r\n");
    shown
}

/// Returns the bytes that remove the line of the old prompt from the screen. `drawn` was printed after it:
/// a line end, the output of the prompt's own programs, the new prompt. Returns nothing if lines may have
/// been wrapped or the cursor moved, because then the position of the old prompt is unknown.
pub fn without_old_prompt(drawn: &[u8], columns: usize) -> Vec<u8> {
    let start = drawn.windows(ERASE_ROW.len()).position(|window| window == ERASE_ROW);
    let drawn = &drawn[start.map_or(0, |start| start + ERASE_ROW.len())..];
    let lines: Vec<&[u8]> = drawn.split(|byte| *byte == b'\n').collect();
    let fits = |line: &&[u8]| width(line).is_some_and(|width| width < columns);
    if lines.len() < 2 || !lines.iter().all(fits) {
        return Vec::new();
    }
    format!("\x1b7\x1b[{}A\x1b[M\x1b8\x1b[A", lines.len() - 1).into_bytes()
}

/// Returns whether the shell erased its prompt, and drew it twice: for the line that was accepted, and for the next. Then
/// the screen needs no change, if nothing was half-typed.
pub fn is_unchanged(drawn: &[u8]) -> bool {
    let Some(mut old) = drawn.strip_prefix(ERASE_ROW) else { return false };
    while let Some(below) = old.strip_prefix(ERASE_ROW_ABOVE) {
        old = below;
    }
    let line_end = b"\r\n";
    // A prompt may have several lines.
    let ends = old.windows(line_end.len()).enumerate().filter(|(_, window)| window == line_end);
    ends.map(|(at, _)| old.split_at(at)).any(|(old, new)| {
        let mut new = &new[line_end.len()..];
        while let Some(behind) =
            PASTE_MODES.iter().find_map(|mode| new.strip_prefix(*mode)).filter(|_| new != old)
        {
            new = behind;
        }
        new == old && !old.is_empty()
    })
}

/// Bytes that bash prints around a line: the mode of pasting, and a return after it.
const PASTE_MODES: [&[u8]; 3] = [b"\x1b[?2004l", b"\x1b[?2004h", b"\r"];

/// Returns how many columns a line takes at most, or `None` if it contains more than coloured text.
fn width(line: &[u8]) -> Option<usize> {
    let mut rest = line;
    let mut width = 0;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match (byte, rest.first()) {
            (0x1b, Some(b'[')) => {
                let end = rest[1..].iter().position(|byte| matches!(byte, 0x40..=0x7e))? + 1;
                let private = rest[1..end].starts_with(b"?");
                if !(private || matches!(rest[end], b'm' | b'K')) || rest[1..end] == *b"?1049" {
                    return None;
                }
                rest = &rest[end + 1..];
            }
            (0x1b, Some(b']')) => {
                let end = rest.iter().position(|byte| *byte == 7 || *byte == b'\\')?;
                rest = &rest[end + 1..];
            }
            (b'\r' | 1 | 2 | 7, _) => {}
            (0..0x20, _) => return None,
            // Non-ASCII characters are counted as bytes, which is never too few.
            _ => width += 1,
        }
    }
    Some(width)
}

/// The shell's prompt, as far as it was seen. The line editor erases its prompt when a bound key runs and
/// redraws it afterwards; the next command may begin before that.
#[derive(Debug, Default)]
pub struct Prompt {
    text: Vec<u8>,
    /// The bytes drawn since a command ended; `None` while that is unknown.
    drawn: Option<Vec<u8>>,
    /// How many commands were shown in the row of a prompt that the line editor has not erased yet.
    shown: u32,
    /// The part of the prompt that was drawn for the shell, and that the shell is going to print itself before it erases the
    /// last of these rows.
    owed: Vec<u8>,
    /// The row of the cursor was erased, and rows above it may follow.
    erasing: bool,
    /// Printed bytes that may be the start of such a sequence.
    held: Vec<u8>,
}

/// What the line editor prints to erase the row of the cursor, and then for each row above it.
const ERASE_ROW: &[u8] = b"\r\x1b[K\r";
const ERASE_ROW_ABOVE: &[u8] = b"\x1b[A\x1b[K\r";

impl Prompt {
    /// Notes that a command has ended, so that the prompt is drawn next.
    pub fn expect(&mut self) {
        self.drawn = Some(Vec::new());
    }

    /// Notes bytes that the shell printed while no command ran.
    pub fn see(&mut self, bytes: &[u8]) {
        if let Some(drawn) = &mut self.drawn
            && drawn.len() + bytes.len() <= MAX_PROMPT_BYTES
        {
            drawn.extend_from_slice(bytes);
        }
    }

    /// Notes that the shell redrew its prompt by printing these bytes.
    pub fn drawn(&mut self, bytes: &[u8]) {
        let start = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let line = &bytes[start..];
        let skip = line.iter().take_while(|byte| **byte == b'\r').count();
        self.drawn = Some(line[skip..].to_vec());
    }

    /// Removes the erasing of a prompt in whose row a command was shown. The line editor does not know of that row, nor of
    /// the output below it, which may have been shown already. The bytes may end anywhere in a sequence.
    pub fn keep_shown(&mut self, printed: &mut Vec<u8>) {
        if self.shown == 0 && !self.erasing {
            return;
        }
        let mut bytes = std::mem::take(&mut self.held);
        bytes.append(printed);
        let mut rest = &bytes[..];
        let mut found = false;
        loop {
            if self.erasing {
                if let Some(behind) = rest.strip_prefix(ERASE_ROW_ABOVE) {
                    rest = behind;
                    continue;
                }
                if ERASE_ROW_ABOVE.starts_with(rest) {
                    self.held = rest.to_vec();
                    return;
                }
                self.erasing = false;
            }
            if self.shown == 1 && !self.owed.is_empty() {
                let own = [&self.owed, ERASE_ROW].concat();
                if own.len() > rest.len() && own.starts_with(rest) {
                    self.held = rest.to_vec();
                    return;
                }
                let known = self.text.len() - self.owed.len();
                match rest.starts_with(&own) {
                    true => rest = &rest[self.owed.len()..],
                    // The prompt was complete: it has become shorter.
                    false if known > 0 => self.text.truncate(known),
                    false => {}
                }
                self.owed.clear();
            }
            let at = rest.windows(ERASE_ROW.len()).position(|window| window == ERASE_ROW);
            let (Some(at), 1..) = (at, self.shown) else { break };
            printed.extend_from_slice(&rest[..at]);
            rest = &rest[at + ERASE_ROW.len()..];
            self.shown -= 1;
            (self.erasing, found) = (true, true);
        }
        let is_start = |length: &usize| rest.ends_with(&ERASE_ROW[..*length]);
        let start = (1..ERASE_ROW.len()).rev().find(is_start).filter(|_| self.shown > 0);
        let (before, start) = rest.split_at(rest.len() - start.unwrap_or(0));
        printed.extend_from_slice(before);
        self.held = start.to_vec();
        // The editor erases its prompt before it prints anything that takes a column.
        if !found && width(before) != Some(0) {
            printed.append(&mut self.held);
            self.shown = 0;
            self.owed.clear();
        }
    }

    /// Returns the bytes to show when a command begins while the line editor holds a half-typed line.
    pub fn typed_over(&mut self, command: &[u8]) -> Vec<u8> {
        self.drawn = None;
        self.shown += 1;
        let mut shown = b"\r\x1b[K$ ".to_vec();
        echo(command, &mut shown);
        shown
    }

    /// Returns the bytes to show when a command begins, as if it had been typed.
    pub fn typed(&mut self, command: &[u8]) -> Vec<u8> {
        let mut shown = Vec::new();
        self.shown += 1;
        self.owed.clear();
        if let Some(drawn) = self.drawn.take() {
            // The prompt follows the last time the line was cleared.
            let start = drawn.windows(ERASE_ROW.len()).rposition(|window| window == ERASE_ROW);
            let drawn = &drawn[start.map_or(0, |start| start + ERASE_ROW.len())..];
            match self.text.strip_prefix(drawn) {
                Some(owed) => {
                    shown.extend_from_slice(owed);
                    self.owed = owed.to_vec();
                }
                None => self.text = drawn.to_vec(),
            }
        }
        echo(command, &mut shown);
        shown
    }
}

/// Appends the text of a command as a terminal would echo it.
fn echo(command: &[u8], shown: &mut Vec<u8>) {
    let text = command.trim_ascii_end();
    Filter::default().filter(&text[..text.len().min(MAX_ECHOED_BYTES)], shown);
    shown.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: &[u8]) {
        for cut in 0..=bytes.len() {
            let mut copy = ScreenCopy::default();
            let mut shown = copy.take(0, &bytes[..cut]);
            shown.extend(copy.take(0, &bytes[cut..]));
            assert_eq!(shown, expected, "cut at {cut}");
        }
    }

    #[test]
    fn colours_are_kept_and_queries_are_removed() {
        check(b"a\nb", b"a\r\nb");
        check(b"\x1b[31mred\x1b[0m", b"\x1b[31mred\x1b[0m");
        check(b"\x1b[6n\x1b[c\x1b[?2004h\x1b[>q.", b".");
        check(b"\x1b]133;D;7\x07x\x1b]11;?\x1b\\y\x1bP$qm\x1b\\z", b"xyz");
        check(b"\x1b[2J\x1b[Hkeep\x1bc", b"keep");
        check(b"\x1b(0q\x05", b"q");
    }

    #[test]
    fn a_shown_command_and_its_output_are_not_erased() {
        let mut prompt = Prompt::default();
        let mut printed = |commands: usize, bytes: &[u8]| {
            for _ in 0..commands {
                prompt.typed(b"x");
            }
            let mut kept = bytes.to_vec();
            prompt.keep_shown(&mut kept);
            String::from_utf8(kept).unwrap()
        };
        let (row, above) = ("\r\x1b[K\r", "\x1b[A\x1b[K\r");
        assert_eq!(printed(1, format!("{row}{above}{above}$ ").as_bytes()), "$ ");
        assert_eq!(printed(2, format!("{row}$ {row}{above}$ ").as_bytes()), "$ $ ");
        assert_eq!(printed(1, format!("\x1b[?2004h{row}{above}$ ").as_bytes()), "\x1b[?2004h$ ");
        // Each command hides one, and only what comes first.
        let other = format!("{row}{above}");
        assert_eq!(printed(0, other.as_bytes()), other);
        assert_eq!(printed(1, b"text"), "text");
        assert_eq!(printed(0, other.as_bytes()), other);
    }

    /// What is shown of a shell that runs three commands, if its bytes are read up to `begun` when the second command begins,
    /// and otherwise up to each of the cuts.
    fn shown(prompt_text: &str, begun: usize, cuts: [usize; 2]) -> String {
        let (row, above) = ("\r\x1b[K\r", "\x1b[A\x1b[K\r");
        let erase = format!("{row}{}", above.repeat(prompt_text.matches("\r\n").count()));
        let mut prompt = Prompt { text: prompt_text.into(), ..Prompt::default() };
        let mut screen = prompt.typed(b"first");
        let print = |prompt: &mut Prompt, bytes: &[u8], screen: &mut Vec<u8>| {
            let mut bytes = bytes.to_vec();
            prompt.keep_shown(&mut bytes);
            prompt.see(&bytes);
            screen.append(&mut bytes);
        };
        screen.extend(b"one\r\n");
        prompt.expect();
        let bytes = format!("{erase}{prompt_text}{erase}");
        let (early, late) = bytes.as_bytes().split_at(begun.min(bytes.len()));
        print(&mut prompt, early, &mut screen);
        screen.extend(prompt.typed(b"second"));
        screen.extend(b"two\r\n");
        let last = format!("{prompt_text}\x1b[?2004h");
        let late = [late, last.as_bytes()].concat();
        let mut from = 0;
        for cut in cuts.into_iter().chain([late.len()]) {
            let to = cut.clamp(from, late.len());
            print(&mut prompt, &late[from..to], &mut screen);
            from = to;
        }
        String::from_utf8(screen).unwrap()
    }

    #[test]
    fn it_does_not_matter_where_the_bytes_of_a_shell_are_cut() {
        for prompt_text in ["$ ", "long\r\nlonger\r\n$ "] {
            let expected =
                format!("first\r\none\r\n{prompt_text}second\r\ntwo\r\n{prompt_text}\x1b[?2004h");
            // Up to the erasing of the prompt of the second command, which comes after it has begun.
            let erase = 5 + 7 * prompt_text.matches("\r\n").count();
            for begun in 0..=erase + prompt_text.len() {
                for first in 0..60 {
                    for second in first..60 {
                        let seen = shown(prompt_text, begun, [first, second]);
                        assert_eq!(seen, expected, "begun at {begun}, cut at {first} and {second}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_prompt_that_became_shorter_is_noticed() {
        let mut prompt = Prompt { text: b"$ long ".to_vec(), ..Prompt::default() };
        for expected in ["long first\r\n", "second\r\n"] {
            prompt.expect();
            prompt.see(b"$ ");
            let shown = prompt.typed(expected.trim_start_matches("long ").as_bytes());
            assert_eq!(String::from_utf8(shown).unwrap(), expected);
            prompt.keep_shown(&mut b"\r\x1b[K\r".to_vec());
        }
    }

    #[test]
    fn a_prompt_that_was_not_drawn_yet_is_drawn_for_the_shell() {
        let mut prompt = Prompt::default();
        assert_eq!(prompt.typed(b"first\n"), b"first\r\n");
        prompt.expect();
        prompt.see(b"\r\x1b[K\r");
        prompt.see(b"$ ");
        assert_eq!(prompt.typed(b"second"), b"second\r\n");
        prompt.expect();
        assert_eq!(prompt.typed(b"third\nmore"), b"$ third\r\nmore\r\n");
        assert_eq!(prompt.typed_over(b"fourth"), b"\r\x1b[K$ fourth\r\n");
    }

    #[test]
    fn a_prompt_that_was_drawn_again_is_recognized() {
        let unchanged = |drawn: &str| is_unchanged(drawn.as_bytes());
        let erase = "\r\x1b[K\r\x1b[A\x1b[K\r";
        for prompt in ["$ ", "first\r\n\x1b[1mlast\x1b[0m $ "] {
            let drawn = format!("{erase}{prompt}\r\n\x1b[?2004l\r\x1b[?2004h{prompt}");
            assert!(unchanged(&drawn), "{drawn:?}");
            assert!(unchanged(&format!("{erase}{prompt}\r\n{prompt}")));
            for other in ["", "# ", "x"] {
                assert!(!unchanged(&format!("{erase}{prompt}\r\n\x1b[?2004l\r{other}")));
                assert!(!unchanged(&format!("{drawn}{other}")) || other.is_empty());
                assert!(!unchanged(&format!("{other}{drawn}")) || other.is_empty());
            }
        }
    }

    #[test]
    fn the_old_prompt_is_removed_if_its_position_is_known() {
        let check = |drawn: &str, expected: &str| {
            let shown = without_old_prompt(drawn.as_bytes(), 20);
            assert_eq!(String::from_utf8(shown).unwrap(), expected, "{drawn:?}");
        };
        let one = "\x1b7\x1b[1A\x1b[M\x1b8\x1b[A";
        check("\r\x1b[K\r/old $ \r\n\x1b[?2004l\r\x1b[?2004h/new $ ", one);
        check("/old $ \r\n\x1b]0;title\x07\x1b[32m/new\x1b[m $ ", one);
        check("$ \r\nsaid\r\n/usr\r\n$ ", "\x1b7\x1b[3A\x1b[M\x1b8\x1b[A");
        check("$ ", "");
        check("$ \r\nthis is longer than the screen is wide $ ", "");
        check("$ \r\n\x1b[2J\x1b[H$ ", "");
    }

    #[test]
    fn long_output_is_cut_with_a_notice() {
        let mut copy = ScreenCopy::default();
        assert_eq!(copy.take(0, &vec![b'x'; 100_000]).len(), 65_536);
        assert_eq!(copy.take(1, b"more"), b"");
        let end = String::from_utf8(copy.end()).unwrap();
        assert!(end.contains("34468 bytes not shown"), "{end}");
    }
}
