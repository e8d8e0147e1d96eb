//! Runs a command through a vendor that merges its streams or treats them as text, so that standard output,
//! standard error and the exit code come back separately and byte for byte.

use base64::{Engine, engine::general_purpose::STANDARD};

use super::vendor::{Execute, Executed};

/// The environment variable that carries the command, so that it needs no quoting.
pub(super) const COMMAND_VARIABLE: &str = "STEAD_COMMAND";
/// The script that runs the command in [`COMMAND_VARIABLE`].
pub(super) const CAPTURE_SCRIPT: &str = "t=$(mktemp -d) && sh -c \"unset STEAD_COMMAND\n$STEAD_COMMAND\" \
     >\"$t/o\" 2>\"$t/e\" </dev/null; c=$?; base64 <\"$t/o\"; echo -; base64 <\"$t/e\"; echo \"- $c\"; \
     rm -rf \"$t\"; exit $c";

/// Returns one script, for vendors that take neither an environment nor a directory.
pub(super) fn script(command: &Execute) -> String {
    let mut text = String::new();
    for (name, value) in &command.env {
        text.push_str(&format!("export {name}={}\n", quoted(value)));
    }
    if let Some(cwd) = &command.cwd {
        text.push_str(&format!("cd -- {} || exit\n", quoted(cwd)));
    }
    text.push_str(&format!("{COMMAND_VARIABLE}={}\n{CAPTURE_SCRIPT}", quoted(&command.command)));
    text
}

/// Parses the output of the script; `None` if the script did not reach its end.
pub(super) fn parse(output: &str) -> Option<Executed> {
    let (streams, code) = output.trim_end().rsplit_once("\n- ")?;
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

/// Quotes a text as one word of a shell.
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
    fn streams_and_exit_code_come_back_separately() {
        let check = |command: &str, code: i32, stdout: &[u8], stderr: &[u8]| {
            let script = script(&execute(command));
            let output = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{command}");
            let parsed = parse(&String::from_utf8(output.stdout).unwrap()).unwrap();
            let (stdout, stderr) = (stdout.to_vec(), stderr.to_vec());
            assert_eq!(parsed, Executed { exit_code: Some(code), stdout, stderr }, "{command}");
        };
        check("printf 'a\\0b\\377'; echo \"$A\" >&2; exit 3", 3, b"a\0b\xff", b"it's\n");
        check("pwd; echo ${STEAD_COMMAND-unset}", 0, b"/usr\nunset\n", b"");
        check("echo '- 7'; echo - >&2", 0, b"- 7\n", b"-\n");
        check("true", 0, b"", b"");
        let many: String = (1..=1000).map(|n| format!("{n}\n")).collect();
        check("seq 1000 >&2; exit 137", 137, b"", many.as_bytes());
    }

    #[test]
    fn output_of_anything_else_is_not_parsed() {
        for output in ["", "sh: not found", "-\n", "YQ==\n-\n- x", "not base64!\n-\n- 0"] {
            assert_eq!(parse(output), None, "{output}");
        }
    }
}
