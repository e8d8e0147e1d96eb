//! Programs written for other vendors' sandboxes, unchanged: their APIs on our port.
//!
//! ```text
//!   e2b, daytona ─┬─▶ sandbox      creates sandboxes of the engine, as `new_sandbox` describes them
//!                 ├─▶ copy         forks and snapshots
//!                 ├─▶ build        templates
//!                 ├─▶ process      programs, each in a terminal of the sandbox's thread
//!                 ├─▶ interpreter  code contexts, each a program
//!                 ├─▶ instance     files
//!                 ├─▶ egress       network rules
//!                 ├─▶ volume, usage
//!                 └─▶ port         HTTP to programs that listen inside
//! ```
//! A sandbox is the engine's noun, a program runs in a terminal: so they outlive the server, run on any
//! provider and can be watched in the app. Each API is a [`Door`](api::Door) beside the native one, and a
//! [`VendorApi`](vendor::Vendor) to the code that both share, which names neither. Keys are ours (`key`).

mod background;
mod build;
mod copy;
mod daytona;
mod e2b;
mod egress;
mod home;
mod instance;
mod interpreter;
mod key;
mod multipart;
mod new_sandbox;
mod port;
mod process;
mod sandbox;
mod usage;
mod vendor;
mod volume;
mod wrap;

use std::{ops::Deref, path::Path, sync::Arc};

use api::{App, Doors};
use axum::Router;
use machine::volume::Volumes;

pub use background::run;

use vendor::VendorApi;

/// The APIs of other vendors. Cheap to clone.
#[derive(Clone)]
pub struct Compat {
    app: App,
    state: Arc<CompatState>,
}

/// What the APIs keep in memory beyond the engine.
struct CompatState {
    keys: key::Keys,
    index: sandbox::SandboxIndex,
    processes: process::ProcessTables,
    watchers: e2b::Watchers,
    usage: usage::UsageHistory,
    builds: build::Builds,
    contexts: interpreter::Contexts,
    volumes: Arc<Volumes>,
    /// Held while a sandbox with volumes is created, and while a volume is removed.
    mounting: tokio::sync::Mutex<()>,
}

impl Compat {
    /// `token` is the server's; the keys of sandboxes are derived from it.
    pub fn new(app: App, token: &str, home: &Path) -> Compat {
        let state = CompatState {
            keys: key::Keys::new(token),
            index: sandbox::SandboxIndex::default(),
            processes: process::ProcessTables::default(),
            watchers: e2b::Watchers::default(),
            usage: usage::UsageHistory::default(),
            builds: build::Builds::default(),
            contexts: interpreter::Contexts::default(),
            volumes: Arc::new(Volumes::new(home)),
            mounting: tokio::sync::Mutex::default(),
        };
        Compat { app, state: Arc::new(state) }
    }

    /// What the guard asks of each API.
    pub fn doors(&self) -> Doors {
        Doors::new(vec![
            Arc::new(e2b::E2bDoor(self.clone())),
            Arc::new(daytona::DaytonaDoor(self.clone())),
        ])
    }

    /// The routes of all of them.
    pub fn routes(&self) -> Router {
        e2b::routes().merge(daytona::routes()).with_state(self.clone())
    }

    /// The API that a sandbox was created through; `None` for the native one.
    fn vendor(&self, origin: &str) -> Option<&'static dyn VendorApi> {
        let all: [&'static dyn VendorApi; 2] = [&e2b::E2bVendor, &daytona::DaytonaVendor];
        all.into_iter().find(|vendor| vendor.origin() == origin)
    }
}

impl Deref for Compat {
    type Target = App;

    fn deref(&self) -> &App {
        &self.app
    }
}
