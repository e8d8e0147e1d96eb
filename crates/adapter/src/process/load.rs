//! Finds the programs that an earlier server started, by the rows of their terminals and commands.

use std::{
    sync::{Arc, atomic::AtomicI32},
    time::Duration,
};

use wire::Stream;

use super::{
    program::{ProcessKind, SandboxProcess},
    table::SandboxProcesses,
    worker_shell,
};
use crate::{
    Adapter,
    wrap::{self, Config},
};
use api::error::Problem;
use model::{Terminal, TerminalStatus, Timestamp};
use store::{CommandQuery, PageRequest, SandboxRecord};

/// The environment variable with the client's name for a terminal, by which it is found after a restart.
pub const PTY_NAME: &str = "DAYTONA_PTY_ID";
/// The environment variable that marks a terminal as a client's session, so that it is not used as a worker.
pub const SESSION_NAME: &str = "DAYTONA_SESSION_ID";
/// Programs that ended longer ago than this are not loaded.
const MAX_ENDED_AGE: Duration = Duration::from_secs(600);
/// The limit of commands that are loaded of each worker.
const MAX_RECENT_COMMANDS: u32 = 16;

impl Adapter {
    /// The programs of a sandbox; programs that an earlier server started are found first.
    pub async fn processes(
        &self,
        sandbox: &SandboxRecord,
    ) -> Result<Arc<SandboxProcesses>, Problem> {
        let processes = self.state.processes.of(sandbox.id());
        processes.loaded.get_or_try_init(|| self.load_processes(sandbox, &processes)).await?;
        Ok(processes)
    }

    async fn load_processes(
        &self,
        sandbox: &SandboxRecord,
        processes: &Arc<SandboxProcesses>,
    ) -> Result<(), Problem> {
        let since = self.now().at.checked_sub(MAX_ENDED_AGE).unwrap_or(Timestamp::MIN);
        for terminal in self.store.thread_terminals(sandbox.id()).await? {
            if !terminal.argv.is_empty() {
                self.load_pty(processes, terminal).await?;
                continue;
            }
            if terminal.env.contains_key(SESSION_NAME) {
                continue;
            }
            let mut is_busy = false;
            let page = PageRequest::first(MAX_RECENT_COMMANDS);
            let query = CommandQuery::default();
            let recent = self.store.commands(&terminal.terminal_id, query, page).await?;
            for command in recent.items.into_iter().rev() {
                let ended = command.status.is_end();
                is_busy |= !ended;
                if ended && command.finished_at.is_none_or(|at| at < since) {
                    continue;
                }
                let Some((config, tag)) = wrap::parse(&command.text) else { continue };
                let head = self.terminals.output(&terminal, &command, Stream::Stderr, 0, 32).await;
                let Some((pid, stderr_start)) = head.ok().and_then(|head| wrap::pid(&head.bytes))
                else {
                    continue;
                };
                let kind = ProcessKind::Command { id: command.command_id.clone(), stderr_start };
                let terminal = terminal.clone();
                let signalled = AtomicI32::new(0);
                let process =
                    Arc::new(SandboxProcess { pid, config, tag, terminal, kind, signalled });
                if ended {
                    processes.inner().ended.push(process);
                } else {
                    processes.begin(process.clone());
                    self.watch_end(processes.clone(), process, None);
                }
            }
            // The default terminal of an image that is being built may have no shell.
            if !is_busy && terminal.shell == worker_shell(sandbox) {
                processes.inner().idle.push(terminal);
            }
        }
        Ok(())
    }

    async fn load_pty(
        &self,
        processes: &Arc<SandboxProcesses>,
        terminal: Terminal,
    ) -> Result<(), Problem> {
        if terminal.status != TerminalStatus::Live {
            return Ok(());
        }
        let Some(pid) = self.terminals.pid(&terminal).await else { return Ok(()) };
        let mut words = terminal.argv.iter().cloned();
        let config = Config {
            cmd: words.next().unwrap_or_default(),
            args: words.collect(),
            envs: terminal.env.clone(),
            cwd: Some(terminal.cwd.clone()).filter(|cwd| !cwd.is_empty()),
        };
        let signalled = AtomicI32::new(0);
        let kind = ProcessKind::Pty;
        let tag = terminal.env.get(PTY_NAME).cloned();
        let process = Arc::new(SandboxProcess { pid, config, tag, terminal, kind, signalled });
        processes.begin(process.clone());
        self.watch_end(processes.clone(), process, None);
        Ok(())
    }
}
