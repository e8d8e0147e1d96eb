//! The known state of a shell, as its dumps update it.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use super::effect::DriverEvent;
use super::harmless::HarmlessFilter;
use super::kind::Kind;
use super::machine::HistoryUse;
use super::paths::Paths;
use super::spec::Spec;
use super::state::{Changes, State};
use super::{limits, procs};

/// The state of a shell as it was last dumped.
#[derive(Debug)]
pub struct ShellSnapshot {
    kind: Kind,
    pub state: State,
    /// The exit code of the last command.
    pub status: i32,
    /// The last entry of the shell's history, with its number.
    pub history: Option<Vec<u8>>,
    /// How many commands were typed into this shell, if it counts them.
    pub typed_count: Option<u64>,
    /// The digest of the last dump and of the limits at that time.
    digest: Option<u64>,
    hasher: RandomState,
    harmless: HarmlessCheck,
}

/// The filter for commands that do not change this state.
#[derive(Debug)]
enum HarmlessCheck {
    NotPrepared,
    Unavailable,
    Ready(Box<HarmlessFilter>),
}

impl ShellSnapshot {
    pub fn new(kind: Kind, state: State) -> Self {
        let mut snapshot = Self {
            kind,
            state,
            status: 0,
            history: None,
            typed_count: None,
            digest: None,
            hasher: RandomState::new(),
            harmless: HarmlessCheck::NotPrepared,
        };
        snapshot.restore_status();
        snapshot
    }

    fn restore_status(&mut self) {
        let text = std::str::from_utf8(self.state.get("status")).ok();
        self.status = text.and_then(|text| text.parse().ok()).unwrap_or(0);
    }

    /// Prepares for another shell.
    pub fn reset(&mut self) {
        self.typed_count = None;
        self.digest = None;
        self.forget_harmless_check();
    }

    /// Replaces the state, for another shell.
    pub fn replace(&mut self, state: Option<State>) {
        if let Some(state) = state {
            self.state = state;
        }
        self.restore_status();
    }

    /// Updates the state from a dump of the shell `pid`. A dump that equals the previous one is not parsed.
    pub fn take(&mut self, mut dump: Vec<u8>, pid: i32, paths: &Paths) -> Changes {
        let limits = limits::read(pid);
        let length = dump.len();
        dump.extend_from_slice(&limits);
        let digest = self.hasher.hash_one(&dump);
        dump.truncate(length);
        let mut newer = State::default();
        if self.digest != Some(digest) {
            self.digest = Some(digest);
            let dump = self.kind.parse(&dump, paths);
            newer = dump.state;
            if dump.history.is_some() {
                self.history = dump.history;
            }
            self.typed_count = dump.typed.or(self.typed_count);
            if !newer.has("cwd")
                && let Ok(cwd) = fs::read_link(format!("/proc/{pid}/cwd"))
            {
                newer.set("cwd", cwd.into_os_string().into_encoded_bytes());
            }
            newer.set("limits", limits);
        }
        newer.set("status", self.status.to_string().into_bytes());
        self.forget_harmless_check();
        self.state.absorb(newer)
    }

    /// Updates the exit code, which is known without a shell.
    pub fn take_status(&mut self) -> Changes {
        let mut newer = State::default();
        newer.set("status", self.status.to_string().into_bytes());
        self.state.absorb(newer)
    }

    /// Updates what a harmless command may have changed: the exit code, and the limits, which another
    /// process can set.
    pub fn take_limits(&mut self, pid: i32) -> Changes {
        let mut changes = self.take_status();
        let limits = limits::read(pid);
        if self.state.get("limits") != limits {
            // The digest of the last dump includes the old limits.
            self.digest = None;
            let mut newer = State::default();
            newer.set("limits", limits);
            changes.0.extend(self.state.absorb(newer).0);
        }
        changes
    }

    /// Updates the state from a dump after a person's command. Returns the event to report: the command, or
    /// a change of state without a command.
    pub fn take_typed(
        &mut self,
        dump: Vec<u8>,
        pid: i32,
        paths: &Paths,
        duration: Duration,
        recording: HistoryUse,
    ) -> Option<DriverEvent> {
        let (before, count_before) = (self.history.take(), self.typed_count);
        let changes = self.take(dump, pid, paths);
        // A dump that equals the previous one was not parsed.
        self.history = self.history.take().or_else(|| before.clone());
        let recorded = self.history.is_some() && self.history != before;
        let typed = match self.typed_count {
            Some(count) => {
                count > count_before.unwrap_or(0) && (recorded || recording == HistoryUse::Recorded)
            }
            None => recorded,
        };
        match &self.history {
            Some(entry) if typed => Some(DriverEvent::Typed {
                text: history_text(entry),
                exit_code: Some(self.status),
                duration,
                changes,
            }),
            Some(_) | None => {
                (!changes.0.is_empty()).then_some(DriverEvent::StateChanged { changes })
            }
        }
    }

    /// Returns whether a command certainly does not change the state of the shell `pid`. The shell must be
    /// in the state of the last dump.
    pub fn is_harmless(&mut self, spec: &Spec, pid: i32) -> bool {
        if let HarmlessCheck::NotPrepared = self.harmless {
            self.harmless = match self.kind.harmless_filter(&self.state) {
                Some(filter) if procs::has_no_loaded_library(pid) => {
                    HarmlessCheck::Ready(Box::new(filter))
                }
                Some(_) | None => HarmlessCheck::Unavailable,
            };
        }
        match &self.harmless {
            HarmlessCheck::Ready(filter) => {
                spec.env.is_empty() && spec.cwd.is_none() && filter.accepts(&spec.text)
            }
            HarmlessCheck::NotPrepared | HarmlessCheck::Unavailable => false,
        }
    }

    /// Drops the filter for harmless commands, because the state may change.
    pub fn forget_harmless_check(&mut self) {
        self.harmless = HarmlessCheck::NotPrepared;
    }
}

/// Returns whether a prompt may show one of the changes.
pub fn shows_in_prompt(changes: &Changes) -> bool {
    let shown = |name: &str| !matches!(name, "status" | "limits" | "traps" | "umask");
    changes.0.iter().any(|(name, _)| shown(name))
}

/// Returns an entry of the history without its number.
fn history_text(entry: &[u8]) -> Vec<u8> {
    let entry = entry.trim_ascii_start();
    let digits = entry.iter().take_while(|byte| byte.is_ascii_digit()).count();
    entry[digits..].strip_prefix(b"*").unwrap_or(&entry[digits..]).trim_ascii_start().to_vec()
}
