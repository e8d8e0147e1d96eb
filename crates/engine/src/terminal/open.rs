//! Creates a terminal: its row and its shell at the same time.
//!
//! A shell takes about as long to start as a row to reach the disk. If one of the two fails, the other is
//! undone. After a crash in between, a row without a shell is restorable, and a shell without a row is
//! ended when its host is found again.

use futures_util::future::BoxFuture;
use jiff::Timestamp;

use super::error::TerminalError;
use super::options::Resume;
use super::terminals::Terminals;
use base::event::EventKind;
use model::{Env, LeaseId, ShellKind, Terminal, TerminalId, TerminalStatus, ThreadId};

#[derive(Debug, Clone)]
pub struct NewTerminal {
    pub thread_id: ThreadId,
    pub lease_id: LeaseId,
    /// The program; empty means the shell.
    pub argv: Vec<String>,
    /// The kind of shell; by default derived from the program.
    pub shell: Option<ShellKind>,
    pub size: (u16, u16),
    /// Where it starts; empty means the thread's directory.
    pub cwd: String,
    /// Variables in addition to the thread's.
    pub env: Env,
}

impl Terminals {
    /// Creates a terminal and starts its program. Boxed, so that it is compiled once and not in each crate that awaits it.
    pub fn open(&self, new: NewTerminal) -> BoxFuture<'_, Result<Terminal, TerminalError>> {
        Box::pin(async move {
            let terminal = Terminal { status: TerminalStatus::Live, ..self.plan(new).await? };
            let live = self.live_at(&terminal, 0);
            // The row is requested first: everything the shell causes is written after it.
            let (added, started) =
                tokio::join!(self.add(&terminal), self.ensure_new_shell(&terminal, &live));
            match (added, started) {
                (Ok(()), Ok(_)) => Ok(terminal),
                (added, started) => {
                    self.close(&terminal.terminal_id).await.ok();
                    if added.is_ok() {
                        self.delete_row(&terminal.terminal_id).await?;
                    }
                    added?;
                    Err(started.err().unwrap_or(TerminalError::Gone))
                }
            }
        })
    }

    /// Returns the row of a new terminal. Refused at the limit of terminals.
    pub(super) async fn plan(&self, new: NewTerminal) -> Result<Terminal, TerminalError> {
        let settings = &self.0.settings;
        let present = self.0.store.count_terminals(&new.thread_id).await?;
        if present >= settings.max_per_thread {
            let limit = settings.max_per_thread;
            return Err(TerminalError::TooMany(format!(
                "thread {} has {present} terminals, and at most {limit} are allowed; delete one first",
                new.thread_id
            )));
        }
        if self.census().0 >= settings.max {
            return Err(TerminalError::TooMany(format!(
                "the limit of {} running terminals is reached; delete some first",
                settings.max
            )));
        }
        let now = Timestamp::now();
        let (argv, shell) = program(new.argv, new.shell);
        Ok(Terminal {
            argv,
            shell,
            cols: new.size.0,
            rows: new.size.1,
            env: new.env,
            cwd: new.cwd,
            ..Terminal::fresh(TerminalId::fresh(), new.thread_id, new.lease_id, now)
        })
    }

    /// Stores the row of a terminal.
    pub(super) async fn add(&self, terminal: &Terminal) -> Result<(), TerminalError> {
        self.0.store.add_terminal(terminal).await?;
        self.0.events.publish(EventKind::TerminalCreated {
            thread_id: terminal.thread_id.clone(),
            terminal_id: terminal.terminal_id.clone(),
        });
        Ok(())
    }

    /// Starts the program of a terminal that was just created. Deletes the row if that fails.
    pub(super) async fn begin(&self, id: &TerminalId) -> Result<Terminal, TerminalError> {
        let row = self.0.store.terminal(id).await?;
        let terminal = row.ok_or(TerminalError::Gone)?;
        let live = self.live(&terminal).await;
        if let Err(error) = self.ensure_shell(&terminal, &live, Resume::Yes).await {
            self.close(id).await.ok();
            self.delete_row(id).await?;
            return Err(error);
        }
        let row = self.0.store.terminal(id).await?;
        row.ok_or(TerminalError::Gone)
    }

    async fn delete_row(&self, id: &TerminalId) -> Result<(), TerminalError> {
        self.0.store.delete_terminal(id, Timestamp::now()).await?;
        Ok(())
    }
}

/// Returns the program and the kind of shell that drives commands in it. An interactive call of a known
/// shell is that shell; everything else is a plain program.
fn program(argv: Vec<String>, shell: Option<ShellKind>) -> (Vec<String>, ShellKind) {
    if let Some(shell) = shell {
        return (argv, shell);
    }
    let Some(first) = argv.first() else { return (argv, ShellKind::default()) };
    let mut name = first.rsplit('/').next().unwrap_or(first);
    let mut rest = &argv[1..];
    if let ("busybox", Some((applet, behind))) = (name, rest.split_first()) {
        (name, rest) = (applet, behind);
    }
    let interactive = rest.iter().all(|word| matches!(word.as_str(), "-l" | "-i" | "--login"));
    let kind = match name {
        "bash" if interactive => ShellKind::Bash,
        "zsh" if interactive => ShellKind::Zsh,
        "sh" | "dash" | "ash" if interactive => ShellKind::Sh,
        _ => ShellKind::Plain,
    };
    (argv, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interactive_call_of_a_known_shell_can_run_commands() {
        let check = |words: &[&str], expected: ShellKind| {
            let argv = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(program(argv, None).1, expected, "{words:?}");
        };
        check(&[], ShellKind::Bash);
        check(&["bash", "-l"], ShellKind::Bash);
        check(&["/usr/bin/zsh"], ShellKind::Zsh);
        check(&["bash", "-c", "sleep 1"], ShellKind::Plain);
        check(&["vim"], ShellKind::Plain);
        check(&["sh"], ShellKind::Sh);
        check(&["/bin/dash", "-i"], ShellKind::Sh);
        check(&["busybox", "sh"], ShellKind::Sh);
        check(&["busybox", "vi"], ShellKind::Plain);
        check(&["sh", "-c", "sleep 1"], ShellKind::Plain);
    }
}
