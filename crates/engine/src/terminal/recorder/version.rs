//! Stores the versions of a terminal's state.

use jiff::Timestamp;
use wire::{Event, Request, Sections};

use super::{ShellOrigin, StateRecorder};
use crate::terminal::error::TerminalError;
use crate::terminal::state_sections;
use base::event::EventKind;
use model::{Cause, Changes, CwdChange, Env, EnvChange};
use store::{Section, StateChange};

impl StateRecorder {
    pub(super) async fn new_version(
        &mut self,
        cause: Cause,
        changed: Sections,
        removed: Vec<String>,
    ) {
        let (change, env, cwd) = self.change(cause, changed, removed);
        loop {
            let change = StateChange { expected: self.version, ..change.clone() };
            match self.store.add_version(&self.id, change).await {
                Ok(version) => {
                    (self.env, self.cwd) = (env, cwd);
                    self.moved_to(version);
                    return;
                }
                Err(error) => {
                    if !self.wait_to_retry(error.clone()).await {
                        self.unstored = Some(error);
                        return;
                    }
                }
            }
        }
    }

    pub(super) async fn apply(&mut self, script: Vec<u8>) -> Result<u64, TerminalError> {
        let terminal = self.id.to_string();
        self.link.call(|seq| Request::Apply { seq, terminal, script }).await?;
        self.unstored = None;
        // The host sends the change before its reply.
        while let Ok(record) = self.records.try_recv() {
            self.record(*record, Some(Cause::Patch)).await;
        }
        if self.resync.has_changed().unwrap_or(false) {
            self.resync.mark_unchanged();
            self.resynchronize().await;
        }
        match self.unstored.take() {
            Some(error) => Err(error.into()),
            None => Ok(self.version),
        }
    }

    pub(super) async fn roll_back(&mut self, to: u64) -> Result<u64, TerminalError> {
        let wanted = self.store.terminal_state(&self.id, Some(to)).await?;
        let env = wanted
            .sections
            .get("env")
            .map(|bytes| state_sections::environment(bytes))
            .unwrap_or_default();
        let delta = state_sections::delta(&self.base, &env);
        let now = Timestamp::now();
        let version = self.store.rollback(&self.id, self.version, to, delta, now).await?;
        (self.env, self.cwd) = (env, wanted.cwd.clone());
        self.moved_to(version);
        let terminal = self.id.to_string();
        let state = state_sections::for_host(wanted);
        self.link.call(|seq| Request::Replace { seq, terminal, state }).await?;
        Ok(version)
    }

    /// Requests the whole state and compares it, because records were dropped or not received.
    pub(super) async fn resynchronize(&mut self) {
        let terminal = self.id.to_string();
        let answer = self.link.call(|seq| Request::State { seq, terminal }).await;
        let Ok(Event::StateReply { sections, .. }) = answer else { return };
        let Ok(known) = self.store.terminal_state(&self.id, None).await else { return };
        self.origin = ShellOrigin::Stored;
        let changed: Sections = sections
            .iter()
            .filter(|(name, bytes)| known.sections.get(name) != Some(bytes))
            .cloned()
            .collect();
        let removed: Vec<String> = known
            .sections
            .into_keys()
            .filter(|name| {
                name != state_sections::BASE && !sections.iter().any(|(other, _)| other == name)
            })
            .collect();
        if !changed.is_empty() || !removed.is_empty() {
            self.new_version(Cause::Typed, changed, removed).await;
        }
    }

    pub(super) fn moved_to(&mut self, version: u64) {
        self.version = version;
        self.stored.send_replace(version);
        let (thread_id, terminal_id) = self.names();
        self.events.publish(EventKind::TerminalChanged { thread_id, terminal_id, version });
    }

    /// Returns the next version as a change for the store, with the environment and directory after it.
    pub(super) fn change(
        &mut self,
        cause: Cause,
        changed: Sections,
        removed: Vec<String>,
    ) -> (StateChange, Env, String) {
        let mut env = None;
        let mut cwd = self.cwd.clone();
        let mut first = None;
        for (name, bytes) in &changed {
            match name.as_str() {
                "env" => env = Some(state_sections::environment(bytes)),
                "cwd" => cwd = String::from_utf8_lossy(bytes).into_owned(),
                _ => {}
            }
        }
        if let (true, Some(env)) = (self.version == 0 && self.base.is_empty(), &env) {
            self.base.clone_from(env);
            first = changed.iter().find(|(name, _)| name == "env");
        }
        let base = first.map(|(_, bytes)| (state_sections::BASE.to_owned(), bytes.clone()));
        let change = StateChange {
            expected: self.version,
            cause,
            env_delta: env.as_ref().map(|env| state_sections::delta(&self.base, env)),
            changed: Section::all(changed.into_iter().chain(base)),
            removed,
            cwd: cwd.clone(),
            at: Timestamp::now(),
        };
        (change, env.unwrap_or_else(|| self.env.clone()), cwd)
    }

    pub(super) fn changes(&self, env: &Env, cwd: &str) -> Changes {
        let moved = cwd != self.cwd;
        let set = env
            .iter()
            .filter(|(name, value)| self.env.get(*name) != Some(value))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let unset = self.env.keys().filter(|name| !env.contains_key(*name)).cloned().collect();
        Changes {
            cwd: moved.then(|| CwdChange { from: self.cwd.clone(), to: cwd.to_owned() }),
            env: EnvChange { set, unset },
        }
    }
}
