//! The API of E2B: its control plane, and the daemon (envd) of every sandbox.
//!
//! It has the routes that the official clients call; `docs/migrate-e2b.md` lists them. Requests to the daemon
//! arrive at the same port; `address` distinguishes them.

mod address;
mod connect;
mod content;
mod control;
mod door;
mod files;
mod filesystem;
mod interpreter;
mod link;
mod list;
mod logs;
mod names;
mod network;
mod process;
mod refusal;
mod routes;
mod snapshot;
mod template;
mod usage;
mod vendor;
mod view;
mod volume;
mod watch;

pub use door::E2bDoor;
pub use routes::routes;
pub use vendor::E2bApi;

use names::{ENVD, ORIGIN};
use refusal::{E2bJson, E2bRefusal, bad};
