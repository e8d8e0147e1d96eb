//! Ending a terminal with every process it has.

use std::time::{Duration, Instant};

use super::Host;
use super::closing::Closing;
use super::slots::Key;
use super::timers::Due;
use crate::cgroup;
use crate::shell::place;
use crate::wire::Code;

/// When it is first looked whether the processes are gone: those that close at once are looked at
/// together.
const FIRST_LOOK: Duration = Duration::from_micros(200);

/// How often it is looked again; a child of ours that ends tells at once.
const LOOK: Duration = Duration::from_millis(5);

/// How long the processes have. One that sleeps in the kernel cannot be ended by anybody.
const PATIENCE: Duration = Duration::from_secs(10);

impl Host {
    /// Forgets a terminal and ends its processes; answers `asked` when they are gone.
    pub(super) fn close(&mut self, key: Key, asked: Option<(Key, u32)>) {
        let Some(mut terminal) = self.terminals.remove(key) else { return };
        self.names.remove(&terminal.id);
        self.release(key);
        self.dirty.retain(|dirty| *dirty != key);
        if let Some(job) = terminal.log.sync() {
            self.syncer.submit(job);
        }
        let pid = terminal.pid();
        if let Some(pid) = pid {
            self.pids.remove(&pid);
        }
        let closing = Closing {
            terminal: terminal.id.clone(),
            dir: terminal.dir.clone(),
            cgroup: terminal.cgroup.take(),
            sessions: terminal.session().into_iter().collect(),
            asked,
            until: Instant::now() + PATIENCE,
        };
        // Most have a cgroup and are gone by the next look; without one, the look is the kill.
        if let Some(path) = &closing.cgroup {
            let _ = cgroup::kill(path);
        }
        self.closing.push(closing);
        self.timers.arm(Due::Closing, FIRST_LOOK);
    }

    /// Answers for those whose processes are gone.
    pub(super) fn check_closing(&mut self) {
        let mut open = Vec::new();
        let mut processes = None;
        for closing in std::mem::take(&mut self.closing) {
            let gone = closing.kill(&mut processes);
            if !gone && Instant::now() < closing.until {
                open.push(closing);
                continue;
            }
            // A process that has ended counts against the limits until it is reaped.
            self.reap();
            place::forget(&closing.dir);
            let Some((connection, seq)) = closing.asked else { continue };
            let (code, message) = if gone {
                (Code::Ok, String::new())
            } else {
                (Code::Failed, "a process of the terminal cannot be ended".to_owned())
            };
            self.reply(connection, seq, code, message);
        }
        self.closing.extend(open);
        if !self.closing.is_empty() {
            self.timers.arm(Due::Closing, LOOK);
        }
    }
}
