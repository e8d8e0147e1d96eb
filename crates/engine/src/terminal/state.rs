//! Changes of a terminal's state through the API: patch, rollback and fork.

use std::{borrow::Cow, collections::BTreeMap};

use jiff::Timestamp;
use shell::quote;
use tokio::sync::oneshot;

use super::error::TerminalError;
use super::open::NewTerminal;
use super::options::Resume;
use super::recorder::StateRequest;
use super::state_sections;
use super::terminals::Terminals;
use model::{Env, Terminal, TerminalId, TerminalState};

impl Terminals {
    /// Sets and removes exported variables in the live shell. Returns the new version.
    pub async fn patch_env(
        &self,
        terminal: &Terminal,
        set: &BTreeMap<String, String>,
        unset: &[String],
    ) -> Result<u64, TerminalError> {
        let script = script(set, unset);
        self.change_state(terminal, |answer| StateRequest::Apply { script, answer }).await
    }

    /// Returns to an earlier version. The result is a new version, which is returned.
    pub async fn rollback(&self, terminal: &Terminal, to: u64) -> Result<u64, TerminalError> {
        self.change_state(terminal, |answer| StateRequest::Rollback { to, answer }).await
    }

    /// Creates another terminal of the same thread with the state of this one at `version`.
    pub async fn fork(&self, from: &Terminal, version: u64) -> Result<Terminal, TerminalError> {
        let state = self.0.store.terminal_state(&from.terminal_id, Some(version)).await?;
        let delta = state_sections::delta(&base(&state), &exported(&state));
        let new = NewTerminal {
            thread_id: from.thread_id.clone(),
            lease_id: from.lease_id.clone(),
            argv: from.argv.clone(),
            shell: Some(from.shell),
            size: (from.cols, from.rows),
            cwd: state.cwd,
            env: from.env.clone(),
        };
        let to = self.plan(new).await?;
        self.add(&to).await?;
        let now = Timestamp::now();
        let id = &to.terminal_id;
        self.0.store.fork_state(&from.terminal_id, version, id, delta, now).await?;
        self.begin(id).await
    }

    /// Gives a terminal that has not started the current state of another.
    pub async fn copy_state(
        &self,
        from: &TerminalId,
        to: &TerminalId,
    ) -> Result<(), TerminalError> {
        let state = self.0.store.terminal_state(from, None).await?;
        let delta = state_sections::delta(&base(&state), &exported(&state));
        self.0.store.fork_state(from, state.version, to, delta, Timestamp::now()).await?;
        Ok(())
    }

    async fn change_state(
        &self,
        terminal: &Terminal,
        make: impl FnOnce(oneshot::Sender<Result<u64, TerminalError>>) -> StateRequest,
    ) -> Result<u64, TerminalError> {
        let live = self.live(terminal).await;
        self.ensure_shell(terminal, &live, Resume::Yes).await?;
        let requests = self.state_requests(&live).await?;
        let (answer, answered) = oneshot::channel();
        requests.send(make(answer)).await.map_err(|_| TerminalError::Gone)?;
        answered.await.map_err(|_| TerminalError::Gone)?
    }
}

pub fn exported(state: &TerminalState) -> Env {
    state.sections.get("env").map(|bytes| state_sections::environment(bytes)).unwrap_or_default()
}

/// Returns the environment of the first shell.
fn base(state: &TerminalState) -> Env {
    state
        .sections
        .get(state_sections::BASE)
        .map(|bytes| state_sections::environment(bytes))
        .unwrap_or_default()
}

/// Replaces the values in shell source that `declare -p`, `typeset -p` or `set` printed, where `hides` accepts the name.
pub fn mask_assignments(source: &[u8], mask: &str, hides: impl Fn(&str) -> bool) -> Vec<u8> {
    let mut masked = Vec::with_capacity(source.len());
    for line in quote::lines(source) {
        match assigned(line) {
            Some((name, value)) if hides(&name) => {
                masked.extend_from_slice(&line[..value]);
                masked.extend_from_slice(mask.as_bytes());
                masked.push(b'\n');
            }
            _ => masked.extend_from_slice(line),
        }
    }
    masked
}

/// Returns the name in an assignment, and the position of its value.
fn assigned(line: &[u8]) -> Option<(Cow<'_, str>, usize)> {
    let equals = line.iter().position(|&byte| byte == b'=')?;
    let start = line[..equals].iter().rposition(|&byte| byte == b' ').map_or(0, |at| at + 1);
    let name = &line[start..equals];
    quote::is_name(name).then(|| (String::from_utf8_lossy(name), equals + 1))
}

/// Returns a script in the syntax that all supported shells share.
fn script(set: &BTreeMap<String, String>, unset: &[String]) -> Vec<u8> {
    let mut script = String::new();
    for name in unset {
        script.push_str(&format!("unset {name}\n"));
    }
    for (name, value) in set {
        script.push_str(&format!("export {name}='{}'\n", value.replace('\'', "'\\''")));
    }
    script.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_of_secrets_are_masked_in_shell_source() {
        let source = "declare -x API_KEY=\"a\nb=c\"\ndeclare -- n=\"TOKEN=1\"\n\
                      typeset -i TOKEN=7\nPASSWORD='it'\\''s'\nexport SECRET\n";
        let masked = mask_assignments(source.as_bytes(), "***", model::looks_secret);
        assert_eq!(
            String::from_utf8(masked).unwrap(),
            "declare -x API_KEY=***\ndeclare -- n=\"TOKEN=1\"\n\
             typeset -i TOKEN=***\nPASSWORD=***\nexport SECRET\n"
        );
    }

    #[test]
    fn any_value_reaches_a_real_shell_as_it_is() {
        let value = "it's \"$HOME\" `x` \\ \n\tline two é %s";
        let set = [("A".to_owned(), value.to_owned())].into();
        let mut text = script(&set, &["B".to_owned()]);
        text.extend_from_slice(b"printf '%s' \"$A$B\"");
        for shell in ["bash", "sh"] {
            let output = std::process::Command::new(shell)
                .arg("-c")
                .arg(String::from_utf8(text.clone()).unwrap())
                .env("B", "gone")
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), value, "{shell}");
        }
    }
}
