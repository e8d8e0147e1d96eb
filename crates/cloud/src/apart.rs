//! A command in the hands of a vendor that mixes what it writes, or takes it for text: it is run so that
//! its streams and its exit code come back apart, and every byte of them.

use base64::{Engine, engine::general_purpose::STANDARD};

use super::vendor::{Execute, Executed};

/// The variable that carries the command past all quoting.
pub(super) const COMMAND: &str = "STEAD_COMMAND";
/// Runs what it carries.
pub(super) const APART: &str = "t=$(mktemp -d) && sh -c \"unset STEAD_COMMAND\n$STEAD_COMMAND\" \
     >\"$t/o\" 2>\"$t/e\" </dev/null; c=$?; base64 <\"$t/o\"; echo -; base64 <\"$t/e\"; echo \"- $c\"; \
     rm -rf \"$t\"; exit $c";

/// The whole of it for a vendor that takes nothing but a text.
pub(super) fn text(command: &Execute) -> String {
    let mut text = String::new();
    for (name, value) in &command.env {
        text.push_str(&format!("export {name}={}\n", quoted(value)));
    }
    if let Some(cwd) = &command.cwd {
        text.push_str(&format!("cd -- {} || exit\n", quoted(cwd)));
    }
    text.push_str(&format!("{COMMAND}={}\n{APART}", quoted(&command.command)));
    text
}

/// How it ended, if this is what it said; else it did not come so far.
pub(super) fn read(said: &str) -> Option<Executed> {
    let (streams, code) = said.trim_end().rsplit_once("\n- ")?;
    let streams = format!("\n{streams}\n");
    let (stdout, stderr) = streams.split_once("\n-\n")?;
    let decoded = |text: &str| {
        let text: String = text.split_ascii_whitespace().collect();
        STANDARD.decode(text).ok()
    };
    Some(Executed {
        exit_code: Some(code.parse().ok()?),
        stdout: decoded(stdout)?,
        stderr: decoded(stderr)?,
    })
}

/// A text as one word of a shell.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Duration;

    fn execute(command: &str) -> Execute {
        Execute {
            command: command.to_owned(),
            env: [("A".to_owned(), "it's".to_owned())].into(),
            cwd: Some("/usr".to_owned()),
            timeout: Duration::from_secs(1),
        }
    }

    #[test]
    fn streams_and_code_come_back_apart() {
        let check = |command: &str, code: i32, stdout: &[u8], stderr: &[u8]| {
            let text = text(&execute(command));
            let said = Command::new("/bin/sh").args(["-c", &text]).output().unwrap();
            assert_eq!(said.status.code(), Some(code), "{command}");
            let read = read(&String::from_utf8(said.stdout).unwrap()).unwrap();
            let (stdout, stderr) = (stdout.to_vec(), stderr.to_vec());
            assert_eq!(read, Executed { exit_code: Some(code), stdout, stderr }, "{command}");
        };
        check("printf 'a\\0b\\377'; echo \"$A\" >&2; exit 3", 3, b"a\0b\xff", b"it's\n");
        check("pwd; echo ${STEAD_COMMAND-unset}", 0, b"/usr\nunset\n", b"");
        check("echo '- 7'; echo - >&2", 0, b"- 7\n", b"-\n");
        check("true", 0, b"", b"");
        let many: String = (1..=1000).map(|n| format!("{n}\n")).collect();
        check("seq 1000 >&2; exit 137", 137, b"", many.as_bytes());
    }

    #[test]
    fn what_is_not_its_own_is_not_taken_for_it() {
        for said in ["", "sh: not found", "-\n", "YQ==\n-\n- x", "not base64!\n-\n- 0"] {
            assert_eq!(read(said), None, "{said}");
        }
    }
}
