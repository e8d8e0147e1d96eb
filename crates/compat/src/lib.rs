//! Programs written for other people's sandboxes, unchanged: their APIs on our port.
//!
//! ```text
//!   e2b, daytona ─┬─▶ sandbox   a thread, and what the other API wants to know of it beyond that
//!                 ├─▶ copy      its files once more
//!                 ├─▶ build     what it is made from
//!                 ├─▶ process   its programs, each in a terminal of the thread
//!                 ├─▶ interpreter  code that remembers, run by one of them
//!                 ├─▶ instance  its files
//!                 ├─▶ reach     what its programs may reach
//!                 └─▶ port      what its programs listen on
//! ```
//! A sandbox is a thread, a program runs in a terminal: so they outlive the server, run on any provider and
//! can be watched in the app. Each API is a [`Door`](api::Door) beside the native one; the keys of others
//! are ours (`key`).

mod build;
mod copy;
mod daytona;
mod e2b;
mod expiry;
mod home;
mod instance;
mod interpreter;
mod key;
mod multipart;
mod port;
mod process;
mod reach;
mod sandbox;
mod usage;
mod volume;
mod wrap;

use std::{ops::Deref, path::Path, sync::Arc};

use api::{App, Doors};
use axum::Router;

pub use expiry::expire;
pub use usage::measure;

use sandbox::Sandboxes;

/// The APIs of other vendors, and what they keep beyond the engine. Cheap to clone.
#[derive(Clone)]
pub struct Compat {
    app: App,
    sandboxes: Arc<Sandboxes>,
}

impl Compat {
    /// `token` is the server's; the keys of sandboxes are derived from it.
    pub fn new(app: App, token: &str, home: &Path) -> Compat {
        Compat { app, sandboxes: Arc::new(Sandboxes::new(token, home)) }
    }

    /// What the guard asks of each API.
    pub fn doors(&self) -> Doors {
        Doors::new(vec![Arc::new(e2b::E2b(self.clone())), Arc::new(daytona::Daytona(self.clone()))])
    }

    /// The routes of all of them.
    pub fn routes(&self) -> Router {
        e2b::routes().merge(daytona::routes()).with_state(self.clone())
    }
}

impl Deref for Compat {
    type Target = App;

    fn deref(&self) -> &App {
        &self.app
    }
}
