//! Wraps a program in a shell command that runs it in a process of its own and reports its process id.
//!
//! The process id is the first line of the command's standard error, so that it is stored with the command. The
//! program and its arguments can be parsed from the command's text.

use serde::{Deserialize, Serialize};

use model::Env;

/// A program as a client requests it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    pub cmd: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Variables in addition to the sandbox's environment.
    #[serde(skip_serializing_if = "Env::is_empty")]
    pub envs: Env,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// The text before the program's words: a subshell, whose termination by a signal the shell does not report.
const BEGIN: &str = "{ (echo \"$BASHPID\" >&9; exec 2>&9 9>&-; exec ";
/// The text after the program's words.
const END: &str = "); } 9>&2 2>/dev/null";
/// The kernel refuses longer arguments (`MAX_ARG_STRLEN`, including the terminating NUL).
const MAX_ARGUMENT_BYTES: usize = (128 << 10) - 1;
/// The script that replaces a longer one: it reads that one from a pipe.
const READ_TEXT: &str = "eval \"$(cat <&8)\" 8<&-";
/// The text before and after the script in the pipe.
const PIPE: (&str, &str) = (" 8< <(printf %s ", ")");
/// The separator before the tag, if there is one.
const TAG: &str = " # ";

/// The shell command that runs a program.
pub fn text(config: &Config, tag: Option<&str>) -> String {
    let mut text = String::from(BEGIN);
    text.push_str(&quote(&config.cmd));
    let long = long_script(config);
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

/// The same for a shell that may not be bash. It cannot be parsed.
pub fn posix_text(config: &Config) -> String {
    const SCRIPT: &str = r#"echo $$ >&9; exec 2>&9 9>&-; exec "$@""#;
    let words = ["sh", "-c", SCRIPT, "sh", &config.cmd].into_iter();
    let words = words.chain(config.args.iter().map(String::as_str)).map(quote);
    format!("{{ (exec {}); }} 9>&2 2>/dev/null", words.collect::<Vec<_>>().join(" "))
}

/// The program and the tag of a shell command that [`text`] returned; `None` for any other command.
pub fn parse(text: &str) -> Option<(Config, Option<String>)> {
    let rest = text.strip_prefix(BEGIN)?;
    let (mut words, mut rest) = self::words(rest)?;
    if let Some(piped) = rest.strip_prefix(PIPE.0) {
        let (long, behind) = self::words(piped)?;
        let replaced = words.iter_mut().find(|word| *word == READ_TEXT)?;
        *replaced = long.into_iter().next()?;
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

/// The index of the argument that is a script of a shell (`bash -c SCRIPT`) and exceeds the kernel's limit.
fn long_script(config: &Config) -> Option<usize> {
    let name = config.cmd.rsplit('/').next().unwrap_or_default();
    if !matches!(name, "bash" | "sh" | "dash" | "zsh") {
        return None;
    }
    let index = config.args.iter().position(|arg| arg == "-c")? + 1;
    config.args.get(index).filter(|text| text.len() > MAX_ARGUMENT_BYTES).map(|_| index)
}

/// The process id in a command's standard error, and the offset where the program's own standard error starts.
pub fn pid(stderr: &[u8]) -> Option<(u32, u64)> {
    let end = stderr.iter().position(|byte| *byte == b'\n')?;
    let number = std::str::from_utf8(&stderr[..end]).ok()?.parse().ok()?;
    Some((number, end as u64 + 1))
}

/// Quotes any text as one word of a shell command.
pub fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The leading words that [`quote`] returned, and the text after them.
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
        fn a_wrapped_program_can_be_parsed(
            cmd in "[^\0]{0,20}",
            args in prop::collection::vec("[^\0]{0,20}", 0..4),
            tag in prop::option::of("[^\0\n\r]{0,10}"),
        ) {
            let config = Config { cmd, args, ..Config::default() };
            prop_assert_eq!(parse(&text(&config, tag.as_deref())), Some((config, tag)));
        }
    }

    #[test]
    fn a_script_too_long_for_an_argument_is_read_from_a_pipe() {
        let long = format!("echo '{}'", "x".repeat(MAX_ARGUMENT_BYTES));
        let args = ["-l", "-c", long.as_str()].map(str::to_owned).to_vec();
        let config = Config { cmd: "/bin/bash".to_owned(), args, ..Config::default() };
        let text = text(&config, Some("tag"));
        assert_eq!(parse(&text), Some((config, Some("tag".to_owned()))));
        // A shell reads the command from a file, as a worker does.
        let file = std::env::temp_dir().join(format!("stead-wrap-{}", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let output = std::process::Command::new("bash").arg(&file).output().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(output.stdout.len(), MAX_ARGUMENT_BYTES + 1, "{:?}", output.status);
        assert!(output.status.success());
    }

    #[test]
    fn a_program_runs_in_any_shell_and_reports_its_process_id() {
        let args =
            ["-c", "echo out; echo \"it's $0\" >&2; exit 3", "$HOME"].map(str::to_owned).to_vec();
        let config = Config { cmd: "sh".to_owned(), args, ..Config::default() };
        let output =
            std::process::Command::new("sh").args(["-c", &posix_text(&config)]).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b"out\n"[..]));
        let (_, start) = pid(&output.stderr).unwrap();
        assert_eq!(&output.stderr[start as usize..], b"it's $HOME\n");
    }

    #[test]
    fn other_commands_are_not_parsed() {
        for text in ["", "true", BEGIN, "{ (echo \"$BASHPID\" >&9; exec 2>&9 9>&-; exec 'a' b); }"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_process_id_is_the_first_line() {
        assert_eq!(pid(b"123\noops"), Some((123, 4)));
        assert_eq!(pid(b"123"), None);
        assert_eq!(pid(b"bash: no\n"), None);
    }
}
