//! Terminals without hosts, for tests of what the server does with its rows and files.

use std::{path::Path, sync::Arc};

use base::{clock::Clock, event::Events, metrics::ServerMetrics};
use model::{Moment, SessionPolicy, ShellKind};
use provider::{Local, Providers};
use store::{FirstUse, Store, ThreadChoices};
use tokio_util::sync::CancellationToken;

use super::{ShellSetup, TerminalSettings, Terminals};
use crate::lease::{Leases, RetryPolicy};

/// Returns leases of the provider `local` in this home.
pub fn leases(
    home: &Path,
    store: &Store,
    events: &Events,
    clock: &Clock,
    stop: CancellationToken,
) -> Leases {
    Leases::new(
        store.clone(),
        Providers::new([Arc::new(Local::new(home)) as Arc<dyn provider::Provider>]),
        events.clone(),
        clock.clone(),
        RetryPolicy::default(),
        stop,
    )
}

/// Returns terminals of these leases.
pub fn terminals(home: &Path, store: &Store, events: &Events, leases: Leases) -> Terminals {
    let directory = home.to_owned();
    let settings = TerminalSettings {
        home: home.to_owned(),
        log_limit: 1 << 20,
        scrollback: 100,
        checksum_reports: false,
        max_per_thread: 8,
        max: 8,
        metrics: ServerMetrics::new(),
        shell_setup: Arc::new(move |_| {
            let (env, mounts) = (model::Env::new(), vec![]);
            Ok(ShellSetup { directory: directory.clone(), env, mounts, workspace: None })
        }),
    };
    Terminals::new(settings, store.clone(), leases, events.clone())
}

/// Returns the first use of a thread, with the defaults of everything.
pub fn first_use(thread: &str, now: Moment) -> FirstUse {
    FirstUse {
        thread_id: thread.parse().unwrap(),
        choices: ThreadChoices::default(),
        policy: SessionPolicy::default(),
        provider: "local".into(),
        shell: ShellKind::Bash,
        size: (80, 24),
        now,
    }
}
