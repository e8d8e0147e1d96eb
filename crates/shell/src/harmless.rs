//! Recognizes commands that certainly leave a bash unchanged, so that its state need not be dumped after
//! them.
//!
//! Pure and conservative: a text that is not understood is not harmless. A harmless text is a list of
//! simple commands of literal words. Each runs a program or one of the few builtins without side effects,
//! in a shell without traps and prompt hooks, and without a function or alias of that name. The state does
//! not show builtins that were loaded from a file; the caller checks for those.

use std::collections::HashSet;

use super::quote;
use super::state::State;

/// Longer texts are not parsed: they take longer to run than a dump.
const MAX_TEXT_BYTES: usize = 4 << 10;

/// Builtins and keywords of bash. [`has_no_effect`] recognizes the uses without side effects.
const BUILTINS_AND_KEYWORDS: &str = ". : [ ] alias bg bind break builtin caller case cd command compgen complete compopt \
    continue coproc declare dirs disown do done echo elif else enable esac eval exec exit export false fc \
    fg fi for function getopts hash help history if in jobs kill let local logout mapfile popd printf \
    pushd pwd read readarray readonly return select set shift shopt source suspend test then time times \
    trap true type typeset ulimit umask unalias unset until wait while";

/// Options under which a simple command may have side effects or end the shell.
const UNSAFE_OPTIONS: [&[u8]; 9] = [
    b"set -o errexit",
    b"set -o keyword",
    b"set -o noexec",
    b"set -o onecmd",
    b"set -o posix",
    b"set -o xtrace",
    b"shopt -s autocd",
    b"shopt -s extdebug",
    b"shopt -s failglob",
];

/// Recognizes harmless commands in a shell with a given state.
#[derive(Debug)]
pub struct HarmlessFilter {
    /// Names that are functions or aliases.
    taken: HashSet<Vec<u8>>,
}

impl HarmlessFilter {
    /// Returns `None` if the shell may run code besides the command, such as a trap, or if that is unknown.
    pub fn of(state: &State) -> Option<Self> {
        let whole = ["vars", "functions", "set", "shopt"].into_iter().all(|name| state.has(name));
        let quiet = state.get("traps").is_empty() && state.get("enable").is_empty();
        let option = |line: &[u8]| UNSAFE_OPTIONS.contains(&line);
        if !whole
            || !quiet
            || state.lines("set").chain(state.lines("shopt")).any(option)
            || state.lines("vars").any(runs_by_itself)
        {
            return None;
        }
        let functions = state.lines("functions").filter_map(|line| {
            let name = line.strip_suffix(b" () ")?.trim_ascii_start();
            Some(name.strip_prefix(b"function ").unwrap_or(name).to_vec())
        });
        let aliases = state.lines("aliases").filter_map(|line| {
            let name = line.strip_prefix(b"alias ")?;
            let name = name.strip_prefix(b"-- ").unwrap_or(name);
            Some(name[..name.iter().position(|byte| *byte == b'=')?].to_vec())
        });
        let taken: HashSet<Vec<u8>> = functions.chain(aliases).collect();
        // The drive file itself calls `builtin`.
        (!taken.contains(&b"builtin"[..])).then_some(Self { taken })
    }

    /// Returns whether this text certainly changes nothing in the shell.
    pub fn accepts(&self, text: &[u8]) -> bool {
        text.len() <= MAX_TEXT_BYTES && HarmlessScan { text, at: 0 }.list(&self.taken).is_some()
    }
}

/// Returns whether a variable, by its line of `declare -p`, makes the shell run code without a command: at
/// a prompt, after a timeout, or when a coprocess exits.
fn runs_by_itself(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"declare -") else { return false };
    let Some(space) = rest.iter().position(|byte| *byte == b' ') else { return true };
    let rest = &rest[space + 1..];
    let equals = rest.iter().position(|byte| *byte == b'=').unwrap_or(rest.len());
    let (name, value) = rest.split_at(equals);
    match name {
        b"PROMPT_COMMAND" | b"TMOUT" => true,
        b"PS1" => value.first().is_some_and(|_| assigns(&quote::word(&value[1..]).0)),
        _ => name.ends_with(b"_PID"),
    }
}

/// Returns whether the expansion of this value may assign a variable or run a command.
fn assigns(value: &[u8]) -> bool {
    let has = |wanted: &[u8]| value.windows(wanted.len()).any(|window| window == wanted);
    let runs = [&b"`"[..], b"$(", b"$[", b"${ ", b"${|"].into_iter().any(has);
    runs || has(b"$") && [&b"="[..], b"++", b"--"].into_iter().any(has)
}

/// A word, and whether it has no quotes.
struct Word {
    text: Vec<u8>,
    bare: bool,
}

struct HarmlessScan<'a> {
    text: &'a [u8],
    at: usize,
}

impl HarmlessScan<'_> {
    /// Parses the whole text. Returns `None` as soon as something is not understood.
    fn list(&mut self, taken: &HashSet<Vec<u8>>) -> Option<()> {
        self.skip(b" \t\n");
        loop {
            let command = self.command()?;
            let (name, arguments) = command.split_first()?;
            if !name.bare || taken.contains(&name.text) {
                return None;
            }
            let own = BUILTINS_AND_KEYWORDS
                .split_ascii_whitespace()
                .any(|known| known.as_bytes() == name.text);
            let harmless =
                if own { has_no_effect(&name.text, arguments) } else { is_program(&name.text) };
            if !harmless {
                return None;
            }
            match self.text[self.at..] {
                [] => return Some(()),
                [b'&', b'&', ..] | [b'|', b'|', ..] => self.at += 2,
                // `|&` does not begin a command.
                [b'|', ..] => self.at += 1,
                [b';' | b'\n', ..] => {
                    self.at += 1;
                    self.skip(b" \t\n");
                    if self.at == self.text.len() {
                        return Some(());
                    }
                }
                _ => return None,
            }
            self.skip(b" \t");
        }
    }

    /// Parses a simple command up to its separator. Returns its words, without redirections.
    fn command(&mut self) -> Option<Vec<Word>> {
        let mut words = Vec::new();
        loop {
            self.skip(b" \t");
            match self.text[self.at..] {
                [] | [b';' | b'\n' | b'&' | b'|', ..] => return Some(words),
                [b'0'..=b'2', b'<' | b'>', ..] => {
                    self.at += 1;
                    self.redirection()?;
                }
                [b'<' | b'>', ..] => self.redirection()?,
                _ => words.push(self.word()?),
            }
        }
    }

    /// Parses a redirection whose effect ends with the command.
    fn redirection(&mut self) -> Option<()> {
        match self.text[self.at..] {
            [b'>', b'&', b'1' | b'2', ref rest @ ..] => {
                self.at += 3;
                return rest.first().is_none_or(|byte| is_blank_or_end(*byte)).then_some(());
            }
            [b'>', b'>', ..] => self.at += 2,
            [b'<' | b'>', ..] => self.at += 1,
            _ => return None,
        }
        self.skip(b" \t");
        // Also refuses `<<`, `>|`, `<>`, `<(` and `>&word`: none of these begins a word.
        (!self.word()?.text.is_empty()).then_some(())
    }

    fn word(&mut self) -> Option<Word> {
        let mut word = Word { text: Vec::new(), bare: true };
        let start = self.at;
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'\'' | b'"' => {
                    let rest = &self.text[self.at + 1..];
                    let quoted = &rest[..rest.iter().position(|next| *next == byte)?];
                    if quoted.iter().any(|inner| !is_literal(*inner, byte)) {
                        return None;
                    }
                    word.text.extend_from_slice(quoted);
                    word.bare = false;
                    self.at += quoted.len() + 2;
                }
                b'<' | b'>' if self.at > start => break,
                byte if is_blank_or_end(byte) => break,
                b'[' | b']' if self.at == start => {
                    self.at += 1;
                    let ends = self.text.get(self.at).is_none_or(|next| is_blank_or_end(*next));
                    return ends.then(|| Word { text: vec![byte], bare: true });
                }
                byte if is_plain(byte) => {
                    word.text.push(byte);
                    self.at += 1;
                }
                _ => return None,
            }
        }
        // A number before a redirection is its descriptor.
        let descriptor = word.bare
            && matches!(self.text.get(self.at), Some(b'<' | b'>'))
            && word.text.iter().all(u8::is_ascii_digit);
        (self.at > start && !descriptor).then_some(word)
    }

    fn skip(&mut self, bytes: &[u8]) {
        let rest = &self.text[self.at..];
        self.at += rest.iter().take_while(|byte| bytes.contains(byte)).count();
    }
}

fn is_blank_or_end(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b';' | b'&' | b'|')
}

/// Returns whether an unquoted byte is literal, or a part of a file name pattern.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_./+,:=@%^-*?~".contains(&byte)
}

/// Returns whether a byte is literal within these quotes, in every locale.
fn is_literal(byte: u8, quote: u8) -> bool {
    let control = byte < b' ' && byte != b'\n' && byte != b'\t' || byte == 0x7f;
    !control && (quote == b'\'' || !b"$`\\!".contains(&byte))
}

/// Returns whether this can be the name of a program.
fn is_program(name: &[u8]) -> bool {
    let starts = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/');
    name.first().is_some_and(starts)
        && name.iter().all(|byte| starts(byte) || matches!(byte, b'+' | b'-'))
}

/// Returns whether this builtin has no side effects with these arguments.
fn has_no_effect(name: &[u8], arguments: &[Word]) -> bool {
    match name {
        b":" | b"true" | b"false" | b"echo" => true,
        b"pwd" => arguments.is_empty(),
        b"printf" => arguments.first().is_some_and(|format| only_prints(&format.text)),
        // `-v` and `-R` evaluate the subscript of their operand.
        b"test" | b"[" => !arguments.iter().any(|word| matches!(&word.text[..], b"-v" | b"-R")),
        _ => false,
    }
}

/// Returns whether a format of `printf` only prints: `-v` and `%n` set variables.
fn only_prints(format: &[u8]) -> bool {
    let mut parts = format.split(|byte| *byte == b'%');
    let begins = parts.next().is_some_and(|first| !first.starts_with(b"-"));
    let mut after_percent = false;
    begins
        && parts.all(|part| {
            let digits = |byte: &&u8| matches!(**byte, b'0'..=b'9' | b'.' | b'-');
            let conversion = part.iter().find(|byte| !digits(byte));
            // An empty part is the first half of `%%`; the second half begins no conversion.
            let prints = after_percent
                || conversion.map_or(part.is_empty(), |byte| b"sdiuxXocbq".contains(byte));
            after_percent = part.is_empty() && !after_percent;
            prints
        })
}

#[cfg(test)]
mod tests;
