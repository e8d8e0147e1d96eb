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
//! A sandbox is a thread, a program runs in a terminal: so they outlive the server, stand on any
//! provider and can be watched in the app. Behind the guard like everything else; the keys of others
//! are ours (`key`).

mod build;
mod copy;
pub mod daytona;
pub mod e2b;
mod expiry;
mod home;
mod instance;
mod interpreter;
mod key;
mod multipart;
pub mod port;
mod process;
mod reach;
mod sandbox;
mod unread;
mod usage;
mod volume;
mod wrap;

pub use expiry::expire;
pub use sandbox::Sandboxes;
pub use unread::read_away;
pub use usage::measure;

/// Lists in queries that clients of other APIs repeat, one value each.
const LISTS: [&str; 6] =
    ["state", "sandbox_ids", "states", "snapshots", "regionIds", "metricNames"];

/// Whether a parameter of a path may be given more than once.
pub fn is_list(path: &str, name: &str) -> bool {
    let lists = daytona::is_path(path)
        || path.starts_with("/sandboxes/") && path.ends_with("/metrics")
        || matches!(path, "/sandboxes" | "/v2/sandboxes");
    lists && LISTS.contains(&name)
}
