//! The checks that `/readyz` reports.
//!
//! Callers need no token, so all of them share one run of each check per interval.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use engine::terminal::Terminals;
use provider::Providers;
use store::{Store, StoreError};

/// How long the result of a check is valid.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Deadline of the store's test write.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// Deadline of a check whose failure is a warning. Probes of orchestrators often wait only one second.
const WARNING_TIMEOUT: Duration = Duration::from_millis(500);
/// Less free space than this in the home directory is a warning.
const MIN_FREE_BYTES: u64 = 1 << 30;
/// How many leases with silent hosts are named.
const MAX_NAMED_LEASES: usize = 10;

/// One part of the server's readiness.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct ReadinessCheck {
    /// The part that was checked.
    pub(super) name: ReadinessPart,
    /// Whether the check passed.
    pub(super) ok: bool,
    /// The cause of a failed check. Only callers with the token see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub(super) reason: Option<String>,
}

/// A part of the server's readiness. The server is not ready if `shutdown` or `store` fails; the others are warnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReadinessPart {
    /// Fails while the server stops.
    Shutdown,
    /// The store accepts writes.
    Store,
    /// The home directory has free space.
    Disk,
    /// All hosts answer.
    Hosts,
    /// The default provider can be used.
    Providers,
}

impl ReadinessCheck {
    fn of(name: ReadinessPart, failure: Option<String>) -> ReadinessCheck {
        ReadinessCheck { name, ok: failure.is_none(), reason: failure }
    }
}

/// The parts of the server that the checks look at.
pub(super) struct ReadinessSubjects {
    pub(super) stopping: CancellationToken,
    pub(super) store: Store,
    pub(super) home: PathBuf,
    pub(super) terminals: Terminals,
    pub(super) providers: Providers,
    /// Name of the default provider.
    pub(super) provider: String,
}

/// The checks, with the last run of each that waits for something.
pub(super) struct ReadinessProbes {
    of: ReadinessSubjects,
    store: SharedProbe,
    disk: SharedProbe,
    provider: SharedProbe,
}

impl ReadinessProbes {
    pub(super) fn new(of: ReadinessSubjects) -> ReadinessProbes {
        let [store, disk, provider] = Default::default();
        ReadinessProbes { of, store, disk, provider }
    }

    /// Runs the checks, those that the server's readiness depends on first.
    pub(super) async fn run(&self) -> Vec<ReadinessCheck> {
        use ReadinessPart::{Disk, Hosts, Providers, Shutdown, Store};
        let of = &self.of;
        let stopping = of.stopping.is_cancelled().then(|| "the server is stopping".to_owned());
        let written = self.store.run(|| {
            let store = of.store.clone();
            async move { store.probe().await.err().map(|error| explain(&error)) }
        });
        let disk = self.disk.run(|| {
            let home = of.home.clone();
            async move {
                let check = base::task::blocking(move || lack_of_space(&home)).await;
                check.unwrap_or_else(|error| Some(error.to_string()))
            }
        });
        let provider = self.provider.run(|| {
            let (providers, name) = (of.providers.clone(), of.provider.clone());
            async move { missing_provider(&providers, &name).await }
        });
        let (written, disk, provider) = tokio::join!(
            within(STORE_TIMEOUT, written, "the store"),
            within(WARNING_TIMEOUT, disk, "the disk of the home directory"),
            within(WARNING_TIMEOUT, provider, "the default provider"),
        );
        [
            (Shutdown, stopping),
            (Store, written),
            (Disk, disk),
            (Hosts, silent_hosts(&of.terminals)),
            (Providers, provider),
        ]
        .map(|(name, failure)| ReadinessCheck::of(name, failure))
        .into()
    }
}

/// A check whose callers share its result. The result is why it failed, or `None`.
#[derive(Default)]
struct SharedProbe {
    last: Mutex<Option<(Instant, ProbeResult)>>,
}

type ProbeResult = Shared<BoxFuture<'static, Option<String>>>;

impl SharedProbe {
    fn run<F>(&self, start: impl FnOnce() -> F) -> ProbeResult
    where
        F: Future<Output = Option<String>> + Send + 'static,
    {
        let mut last = self.last.lock();
        if let Some((started, result)) = &*last
            && (result.peek().is_none() || started.elapsed() < PROBE_INTERVAL)
        {
            return result.clone();
        }
        // A task: the check must end even if the caller that started it disconnects.
        let task = tokio::spawn(start());
        let result = async move { task.await.unwrap_or_else(|error| Some(error.to_string())) };
        let result = result.boxed().shared();
        *last = Some((Instant::now(), result.clone()));
        result
    }
}

async fn within(limit: Duration, probe: ProbeResult, what: &str) -> Option<String> {
    timeout(limit, probe).await.unwrap_or_else(|_| Some(format!("{what} does not respond")))
}

fn explain(error: &StoreError) -> String {
    // An orchestrator asks every few seconds; a failed sync is in the log already.
    if !matches!(error, StoreError::SyncFailed { .. }) {
        tracing::warn!(%error, "the store is unavailable");
    }
    error.to_string()
}

fn lack_of_space(home: &Path) -> Option<String> {
    let shown = home.display();
    match rustix::fs::statvfs(home) {
        Err(error) => Some(format!("the free space of {shown} is unknown: {error}")),
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let mib = free >> 20;
            (free < MIN_FREE_BYTES).then(|| format!("only {mib} MiB are free in {shown}"))
        }
    }
}

fn silent_hosts(terminals: &Terminals) -> Option<String> {
    let leases = terminals.unreachable_leases();
    let named: Vec<&str> = leases.iter().take(MAX_NAMED_LEASES).map(|id| id.as_str()).collect();
    let more = match leases.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!named.is_empty()).then(|| format!("no answer from the hosts of {}{more}", named.join(", ")))
}

async fn missing_provider(providers: &Providers, name: &str) -> Option<String> {
    let missing = match providers.named(name) {
        Ok(provider) => provider.missing().await.unwrap_or_else(|error| vec![error.to_string()]),
        Err(error) => vec![error.to_string()],
    };
    (!missing.is_empty()).then(|| format!("{name}: {}", missing.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_without_space_or_without_a_disk_is_reported() {
        let reason = lack_of_space(Path::new("/no/such/home")).unwrap();
        assert!(reason.starts_with("the free space of /no/such/home is unknown"), "{reason}");
        // A file system without blocks has no free space.
        assert_eq!(lack_of_space(Path::new("/proc")).unwrap(), "only 0 MiB are free in /proc");
    }

    #[tokio::test]
    async fn callers_share_a_check_and_one_that_hangs_is_a_failure() {
        let probe = SharedProbe::default();
        let never = probe.run(std::future::pending);
        let shared = probe.run(|| async { Some("a second check".to_owned()) });
        assert!(never.ptr_eq(&shared));
        let failure = within(Duration::ZERO, shared, "the disk").await;
        assert_eq!(failure.as_deref(), Some("the disk does not respond"));
    }
}
