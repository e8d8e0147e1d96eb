//! What is asked of a vendor of sandboxes.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use super::http::{Fault, Progress};
use super::pipe::Channel;
use crate::remote::{Screen, Wish};
use model::Env;
use provider::{Fidelity, Observed};

/// How long a sandbox may take to become what it is wanted to be, and how often that is looked at.
pub(super) const CHANGING: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(250);

/// What a vendor answers.
pub(super) type Answered<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// Labels of a sandbox.
pub(super) type Labels = BTreeMap<String, String>;

/// A sandbox as its vendor tells it.
#[derive(Debug, Clone)]
pub(super) struct Sandbox {
    /// The vendor's name for it.
    pub(super) id: String,
    /// What it was made for.
    pub(super) labels: Labels,
    /// How it is.
    pub(super) observed: Observed,
    /// Where its daemon is.
    pub(super) url: String,
    /// What opens that, where it is not the vendor's own key.
    pub(super) token: Option<super::http::Key>,
    /// Which of its servers runs commands, where there are several.
    pub(super) server: Option<String>,
    /// Where its PTYs are, of a vendor that is asked for them.
    pub(super) ptys: Option<String>,
}

/// One command for a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Execute {
    /// Run by a POSIX shell.
    pub(super) command: String,
    /// Added to the sandbox's own environment.
    pub(super) env: Env,
    pub(super) cwd: Option<String>,
    pub(super) timeout: Duration,
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Executed {
    /// `None` if it timed out.
    pub(super) exit_code: Option<i32>,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

/// What a vendor tells that a sandbox uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
pub(super) struct Usage {
    /// Bytes of memory.
    pub(super) mem_used: u64,
    /// Bytes of its disk.
    pub(super) disk_used: u64,
}

/// Somebody who has sandboxes. Each operation may be asked again; one on a sandbox that is not there
/// is a fault with status 404.
pub(super) trait Vendor: Send + Sync + fmt::Debug {
    /// The provider's name.
    fn name(&self) -> &'static str;
    /// The user that programs run as, and where that is at home.
    fn user(&self) -> (&'static str, &'static str);
    /// What is kept of a sandbox that is paused.
    fn pauses(&self) -> Fidelity;
    /// Whether these settings of a lease can be taken; else why not.
    fn accepts(&self, spec: &serde_json::Value) -> Result<(), String>;
    /// Makes a sandbox.
    fn make<'a>(
        &'a self,
        name: &'a str,
        labels: &'a Labels,
        spec: &'a serde_json::Value,
    ) -> Answered<'a, Sandbox>;
    /// Every sandbox with these labels.
    fn find<'a>(&'a self, labels: &'a Labels) -> Answered<'a, Vec<Sandbox>>;
    /// A sandbox, if it is there.
    fn look<'a>(&'a self, id: &'a str) -> Answered<'a, Option<Sandbox>>;
    /// Makes it hold still.
    fn pause<'a>(&'a self, id: &'a str) -> Answered<'a, ()>;
    /// Makes it run.
    fn resume<'a>(&'a self, id: &'a str) -> Answered<'a, ()>;
    /// Makes it be gone; one that is not there is a success.
    fn kill<'a>(&'a self, id: &'a str) -> Answered<'a, ()>;
    /// Says that it is needed, which has to be said so often.
    fn keep<'a>(&'a self, sandbox: &'a Sandbox) -> Answered<'a, ()>;
    /// See [`keep`](Self::keep).
    fn pace(&self) -> Duration;
    /// Runs a command to its end.
    fn run<'a>(&'a self, sandbox: &'a Sandbox, command: &'a Execute) -> Answered<'a, Executed>;
    /// Writes a file, and the directories that it needs.
    fn upload<'a>(
        &'a self,
        sandbox: &'a Sandbox,
        path: &'a str,
        bytes: Bytes,
        progress: Option<Progress>,
    ) -> Answered<'a, ()>;
    /// What a whole sandbox uses, of a vendor that tells where no host of ours does.
    fn usage<'a>(&'a self, sandbox: &'a Sandbox) -> Answered<'a, Option<Usage>> {
        let _ = sandbox;
        Box::pin(std::future::ready(Ok(None)))
    }
    /// A PTY, of a vendor that has them and no host of ours; `None` where there is none, or none any more.
    fn screen<'a>(&'a self, sandbox: &'a Sandbox, wish: &'a Wish) -> Answered<'a, Option<Screen>> {
        let _ = (sandbox, wish);
        Box::pin(std::future::ready(Ok(None)))
    }
    /// Starts a program that reads and writes lines of text; not asked of a vendor that only runs commands.
    fn attach<'a>(&'a self, sandbox: &'a Sandbox, words: &'a [String]) -> Answered<'a, Channel> {
        let _ = (sandbox, words);
        let why = "it has no streams to programs".to_owned();
        Box::pin(std::future::ready(Err(Fault::Broken { vendor: self.name(), why })))
    }
}

/// The settings of a lease; nothing is the default of all of them.
pub(super) fn settings<T: DeserializeOwned + Default>(
    spec: &serde_json::Value,
) -> Result<T, String> {
    if spec.is_null() {
        return Ok(T::default());
    }
    T::deserialize(spec).map_err(|error| error.to_string())
}

/// Looks until there is what was wanted.
pub(super) async fn until<T, F>(
    vendor: &'static str,
    mut look: impl FnMut() -> F,
) -> Result<T, Fault>
where
    F: Future<Output = Result<Option<T>, Fault>>,
{
    let deadline = Instant::now() + CHANGING;
    loop {
        if let Some(seen) = look().await? {
            return Ok(seen);
        }
        if Instant::now() > deadline {
            let why = format!("what was asked for did not come about in {} s", CHANGING.as_secs());
            return Err(Fault::Broken { vendor, why });
        }
        sleep(LOOK).await;
    }
}
