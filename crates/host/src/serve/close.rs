//! Closing a terminal and ending all its processes.

use std::time::{Duration, Instant};

use super::Host;
use super::closing::Closing;
use super::slots::Key;
use super::timers::Due;
use crate::cgroup;
use shell::run_dir;
use wire::ReplyCode;

/// How long after a close the processes are first checked, so that terminals closed together are
/// checked together.
const FIRST_CHECK_DELAY: Duration = Duration::from_micros(200);

/// How often the processes are checked again. The exit of a child is noticed at once.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// How long the processes may take to exit. One in uninterruptible sleep cannot be killed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

impl Host {
    /// Closes a terminal and kills its processes. `request` is answered when all have exited.
    pub(super) fn close(&mut self, key: Key, request: Option<(Key, u32)>) {
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
            request,
            until: Instant::now() + CLOSE_TIMEOUT,
        };
        // Without a cgroup, the first check finds the processes and kills them.
        if let Some(path) = &closing.cgroup {
            let _ = cgroup::kill(path);
        }
        self.closing.push(closing);
        self.timers.arm(Due::Closing, FIRST_CHECK_DELAY);
    }

    /// Answers the requests to close terminals whose processes have exited.
    pub(super) fn check_closing(&mut self) {
        let mut open = Vec::new();
        let mut processes = None;
        for closing in std::mem::take(&mut self.closing) {
            let gone = closing.kill(&mut processes);
            if !gone && Instant::now() < closing.until {
                open.push(closing);
                continue;
            }
            // An exited process counts against the limits until it is reaped.
            self.reap();
            run_dir::remove(&closing.dir);
            let Some((connection, seq)) = closing.request else { continue };
            let (code, message) = if gone {
                (ReplyCode::Ok, String::new())
            } else {
                (ReplyCode::Failed, "a process of the terminal cannot be killed".to_owned())
            };
            self.reply(connection, seq, code, message);
        }
        self.closing.extend(open);
        if !self.closing.is_empty() {
            self.timers.arm(Due::Closing, CHECK_INTERVAL);
        }
    }
}
