//! Terminals where a provider can only run commands: a host of ours in this process, which speaks the
//! wire protocol as one inside an instance would.
//!
//! ```text
//!   server ══ wire protocol ══ host ──▶ HOME/terminals/<id>/{log, commands, began}
//!                               │  └──▶ HOME/remote/<instance>/<terminal>    what it takes to go on after a kill
//!                               ├── follow ── spool ── `sh -c` ──▶ the instance
//!                               └── program ── a PTY of the instance's, where there are any
//! ```
//! Each command gets a shell of its own, which is given the state and tells it afterwards
//! ([`host::shell::remote`]); the `spool` makes it run once and outlive us. What cannot be had this way: a
//! PTY for shells, job control, and shells that live between commands. `measure` counts what all of it uses.

mod follow;
mod host;
mod kept;
mod line;
mod measure;
mod program;
mod spool;
mod terminal;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;

use self::host::{Handle, Host};
use model::InstanceId;
use provider::{Connection, Metrics, ProviderError, Reply};

/// How long one call may take; what we run waits for less than a third of it.
pub(super) const CALL: Duration = Duration::from_secs(30);

/// What a provider can do that only runs commands. Everything may be asked again.
pub(super) trait Commands: Send + Sync + fmt::Debug {
    /// Runs a text by `sh -c` to its end and answers what that wrote to standard output.
    fn run<'a>(&'a self, text: String) -> Reply<'a, Vec<u8>>;

    /// Writes a file whose directory is there.
    fn put<'a>(&'a self, path: &'a str, bytes: Vec<u8>) -> Reply<'a, ()>;

    /// A PTY; `None` where there are none, or where the one that is known is not any more.
    fn screen<'a>(&'a self, wish: &'a Wish) -> Reply<'a, Option<Screen>> {
        let _ = wish;
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// Which PTY is wanted.
#[derive(Debug, Clone)]
pub(super) enum Wish {
    /// One of this many columns and rows, with a shell that reads lines and has these in its environment. Asked
    /// twice, there may be two.
    New { size: (u16, u16), env: Vec<(String, String)> },
    /// The one of this id.
    Known(String),
}

/// A connection to a PTY. When nothing more is heard without an exit, it was lost; the PTY may be there.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) id: String,
    pub(super) tell: mpsc::Sender<Tell>,
    pub(super) hear: mpsc::Receiver<Hear>,
}

/// What a PTY is told.
#[derive(Debug)]
pub(super) enum Tell {
    /// This was typed.
    Input(Vec<u8>),
    /// It has so many columns and rows.
    Size(u16, u16),
}

/// What is heard of a PTY.
#[derive(Debug)]
pub(super) enum Hear {
    Output(Vec<u8>),
    /// What it was made for has ended.
    Exit(i32),
}

/// The hosts of instances that have none inside.
#[derive(Debug)]
pub(super) struct Remotes {
    /// Where what they need after a kill is kept, a directory for each instance.
    dir: PathBuf,
    hosts: Mutex<HashMap<InstanceId, Handle>>,
}

impl Remotes {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, hosts: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<InstanceId, Handle>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an instance be fit for this; `root` is a directory inside.
    pub(super) async fn prepare(commands: &dyn Commands, root: &str) -> Result<(), ProviderError> {
        let doing = "prepare a sandbox";
        let said = commands.run(spool::prepare(root)).await?;
        let reason = match spool::word(&said).as_deref() {
            Some("none") => return Ok(()),
            Some(missing) => format!("it cannot run our commands: {missing}"),
            None => format!("it said {:?}", String::from_utf8_lossy(&said).trim()),
        };
        Err(ProviderError::Refused { doing, reason })
    }

    /// What the terminals of an instance use.
    pub(super) async fn measure(
        commands: &dyn Commands,
        root: &str,
    ) -> Result<Metrics, ProviderError> {
        measure::measure(commands, root).await
    }

    /// A stream to the host of an instance; `until` is dropped when it is over.
    pub(super) fn connect(
        &self,
        instance: &InstanceId,
        root: &str,
        commands: Arc<dyn Commands>,
        until: DropGuard,
    ) -> Connection {
        let mut hosts = self.lock();
        hosts.retain(|_, host| !host.is_over());
        let handle = hosts.entry(instance.clone()).or_insert_with(|| {
            Host::start(instance, self.dir.join(instance.as_str()), root, commands)
        });
        handle.hold(false);
        Box::new(handle.connect(until))
    }

    /// The instance is about to be paused, or runs again.
    pub(super) fn hold(&self, instance: &InstanceId, held: bool) {
        if let Some(host) = self.lock().get(instance) {
            host.hold(held);
        }
    }

    /// The instance is gone for good.
    pub(super) fn forget(&self, instance: &InstanceId) {
        if let Some(host) = self.lock().remove(instance) {
            host.end();
        }
        let _ = std::fs::remove_dir_all(self.dir.join(instance.as_str()));
    }
}
