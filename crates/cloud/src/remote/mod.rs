//! Terminals for providers that can only run commands: a host inside the server process with the same wire
//! protocol as a host inside an instance.
//!
//! ```text
//!   server ══ wire protocol ══ host ──▶ HOME/terminals/<id>/{log, commands, began}
//!                               │  └──▶ HOME/remote/<instance>/<terminal>    state that survives a kill
//!                               ├── follow ── spool ── `sh -c` ──▶ the instance
//!                               └── program ── a PTY of the instance, if the vendor has PTYs
//! ```
//! Each command runs in a new shell, which loads the terminal's state and saves it afterwards
//! ([`shell::remote`]); the `spool` runs each command at most once and lets it outlive the server.
//! Not available this way: a PTY for shells, job control, and shells that live between commands.
//! `measure` counts the resources of all terminals.

mod follow;
mod host;
mod instance;
mod line;
mod measure;
mod program;
mod saved;
mod spool;
mod terminal;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::DropGuard;

use self::host::{RemoteHandle, RemoteHost};
pub(super) use instance::{CALL_TIMEOUT, CommandRunner, PtyEvent, PtyInput, PtyRequest, RemotePty};
use model::InstanceId;
use provider::{Connection, Metrics, ProviderError};

/// The in-process hosts, one for each instance without a host inside.
#[derive(Debug)]
pub(super) struct Remotes {
    /// Holds one directory per instance with the state of its terminals.
    dir: PathBuf,
    hosts: Mutex<HashMap<InstanceId, RemoteHandle>>,
}

impl Remotes {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, hosts: Mutex::default() }
    }

    /// Checks that an instance has the programs our scripts need, and creates the directory `root` in it.
    pub(super) async fn prepare(
        commands: &dyn CommandRunner,
        root: &str,
    ) -> Result<(), ProviderError> {
        let doing = "prepare a sandbox";
        let output = commands.run(spool::prepare(root)).await?;
        let reason = match spool::word(&output).as_deref() {
            Some("none") => return Ok(()),
            Some(missing) => format!("the sandbox lacks programs that Stead needs: {missing}"),
            None => format!("unexpected output {:?}", String::from_utf8_lossy(&output).trim()),
        };
        Err(ProviderError::Refused { doing, reason })
    }

    /// Measures the terminals of an instance.
    pub(super) async fn measure(
        commands: &dyn CommandRunner,
        root: &str,
    ) -> Result<Metrics, ProviderError> {
        measure::measure(commands, root).await
    }

    /// Returns a stream to the host of an instance; `until` is dropped when the stream ends.
    pub(super) fn connect(
        &self,
        instance: &InstanceId,
        root: &str,
        commands: Arc<dyn CommandRunner>,
        until: DropGuard,
    ) -> Connection {
        let mut hosts = self.hosts.lock();
        hosts.retain(|_, host| !host.is_stopped());
        let handle = hosts.entry(instance.clone()).or_insert_with(|| {
            RemoteHost::start(instance, self.dir.join(instance.as_str()), root, commands)
        });
        handle.resume();
        Box::new(handle.connect(until))
    }

    /// Stops calling an instance that is about to be paused: some vendors would resume it.
    pub(super) fn pause(&self, instance: &InstanceId) {
        if let Some(host) = self.hosts.lock().get(instance) {
            host.pause();
        }
    }

    pub(super) fn resume(&self, instance: &InstanceId) {
        if let Some(host) = self.hosts.lock().get(instance) {
            host.resume();
        }
    }

    /// Stops the host of a destroyed instance and removes its state.
    pub(super) fn remove(&self, instance: &InstanceId) {
        if let Some(host) = self.hosts.lock().remove(instance) {
            host.stop();
        }
        let _ = std::fs::remove_dir_all(self.dir.join(instance.as_str()));
    }
}
