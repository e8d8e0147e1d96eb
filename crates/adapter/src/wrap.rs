//! A program as text for a shell that runs it in a process of its own and reports its number.
//!
//! The number is the first line of the command's standard error: it is kept with the command, so that
//! a reader of the command also finds the number. The text alone says what was asked for.

use serde::{Deserialize, Serialize};

use model::Env;

/// A program that a client asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    pub cmd: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// What its environment has beyond the sandbox's.
    #[serde(skip_serializing_if = "Env::is_empty")]
    pub envs: Env,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// What goes before the program's words: a process of its own, whose death the shell keeps to itself.
const BEGIN: &str = "{ (echo \"$BASHPID\" >&9; exec 2>&9 9>&-; exec ";
/// What goes behind them.
const END: &str = "); } 9>&2 2>/dev/null";
/// The kernel refuses a longer argument (`MAX_ARG_STRLEN`, with the zero at its end).
const MAX_ARGUMENT_BYTES: usize = (128 << 10) - 1;
/// What a shell runs in place of a longer text, which it reads from a pipe.
const READ_TEXT: &str = "eval \"$(cat <&8)\" 8<&-";
/// Around the text in the pipe.
const PIPE: (&str, &str) = (" 8< <(printf %s ", ")");
/// Between the tag and the text, where there is one.
const TAG: &str = " # ";

/// The text that runs a program.
pub fn text(config: &Config, tag: Option<&str>) -> String {
    let mut text = String::from(BEGIN);
    text.push_str(&quote(&config.cmd));
    let long = long_text(config);
    for (index, arg) in config.args.iter().enumerate() {
        text.push(' ');
        text.push_str(&quote(if long == Some(index) { READ_TEXT } else { arg }));
    }
    if let Some(index) = long {
        text.push_str(PIPE.0);
        text.push_str(&quote(&config.args[index]));
        text.push_str(PIPE.1);
    }
    text.push_str(END);
    if let Some(tag) = tag {
        text.push_str(TAG);
        text.push_str(&tag.replace(['\n', '\r'], " "));
    }
    text
}

/// The program and the tag that a text runs, if it is such a text.
pub fn parse(text: &str) -> Option<(Config, Option<String>)> {
    let rest = text.strip_prefix(BEGIN)?;
    let (mut words, mut rest) = self::words(rest)?;
    if let Some(piped) = rest.strip_prefix(PIPE.0) {
        let (long, behind) = self::words(piped)?;
        let place = words.iter_mut().find(|word| *word == READ_TEXT)?;
        *place = long.into_iter().next()?;
        rest = behind.strip_prefix(PIPE.1)?;
    }
    let rest = rest.strip_prefix(END)?;
    let tag = match rest {
        "" => None,
        rest => Some(rest.strip_prefix(TAG)?.to_owned()),
    };
    let mut words = words.into_iter();
    let cmd = words.next()?;
    Some((Config { cmd, args: words.collect(), ..Config::default() }, tag))
}

/// Which argument is the text of a shell (`bash -c TEXT`) and too long for one.
fn long_text(config: &Config) -> Option<usize> {
    let name = config.cmd.rsplit('/').next().unwrap_or_default();
    if !matches!(name, "bash" | "sh" | "dash" | "zsh") {
        return None;
    }
    let index = config.args.iter().position(|arg| arg == "-c")? + 1;
    config.args.get(index).filter(|text| text.len() > MAX_ARGUMENT_BYTES).map(|_| index)
}

/// The number in what a command wrote to its standard error, and where the program's own begins.
pub fn pid(stderr: &[u8]) -> Option<(u32, u64)> {
    let end = stderr.iter().position(|byte| *byte == b'\n')?;
    let number = std::str::from_utf8(&stderr[..end]).ok()?.parse().ok()?;
    Some((number, end as u64 + 1))
}

/// One word for a shell, whatever is in it.
pub fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The words that [`quote`] made, and what is behind them.
fn words(mut text: &str) -> Option<(Vec<String>, &str)> {
    let mut words = Vec::new();
    loop {
        let mut word = String::new();
        text = text.strip_prefix('\'')?;
        loop {
            let end = text.find('\'')?;
            word.push_str(&text[..end]);
            text = &text[end + 1..];
            match text.strip_prefix("\\''") {
                Some(rest) => {
                    word.push('\'');
                    text = rest;
                }
                None => break,
            }
        }
        words.push(word);
        match text.strip_prefix(' ') {
            Some(rest) if rest.starts_with('\'') => text = rest,
            _ => return Some((words, text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_asked_for_can_be_read_again(
            cmd in "[^\0]{0,20}",
            args in prop::collection::vec("[^\0]{0,20}", 0..4),
            tag in prop::option::of("[^\0\n\r]{0,10}"),
        ) {
            let config = Config { cmd, args, ..Config::default() };
            prop_assert_eq!(parse(&text(&config, tag.as_deref())), Some((config, tag)));
        }
    }

    #[test]
    fn a_text_that_is_too_long_for_an_argument_is_read_from_a_pipe() {
        let long = format!("echo '{}'", "x".repeat(MAX_ARGUMENT_BYTES));
        let args = ["-l", "-c", long.as_str()].map(str::to_owned).to_vec();
        let config = Config { cmd: "/bin/bash".to_owned(), args, ..Config::default() };
        let text = text(&config, Some("tag"));
        assert_eq!(parse(&text), Some((config, Some("tag".to_owned()))));
        // The test's own shell runs it as a worker does.
        let file = std::env::temp_dir().join(format!("stead-wrap-{}", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let ran = std::process::Command::new("bash").arg(&file).output().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(ran.stdout.len(), MAX_ARGUMENT_BYTES + 1, "{:?}", ran.status);
        assert!(ran.status.success());
    }

    #[test]
    fn other_texts_are_not_programs() {
        for text in ["", "true", BEGIN, "{ (echo \"$BASHPID\" >&9; exec 2>&9 9>&-; exec 'a' b); }"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_number_is_the_first_line() {
        assert_eq!(pid(b"123\noops"), Some((123, 4)));
        assert_eq!(pid(b"123"), None);
        assert_eq!(pid(b"bash: no\n"), None);
    }
}
