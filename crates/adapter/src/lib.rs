//! Code that the translations of other vendors' APIs share. It knows no vendor.
//!
//! ```text
//!   sandbox      creates sandboxes of the engine, as `new_sandbox` describes them
//!   copy         forks and snapshots
//!   build        templates
//!   process      programs, each in a terminal of the sandbox's thread
//!   interpreter  code contexts, each a program
//!   instance     files
//!   egress       network rules
//!   volume, usage, watchers
//!   port         HTTP to programs that listen inside
//! ```
//! A sandbox is a noun of the engine and a program runs in a terminal, so both outlive the server, run on any
//! provider and can be watched in the app. A [`VendorApi`](vendor::VendorApi) holds the differences between the
//! APIs.

mod adapter;
mod background;
pub mod build;
pub mod copy;
pub mod egress;
mod home;
pub mod instance;
pub mod interpreter;
pub mod multipart;
pub mod new_sandbox;
mod origin;
pub mod port;
pub mod process;
pub mod sandbox;
mod sandbox_index;
pub mod usage;
pub mod vendor;
pub mod volume;
mod watchers;
pub mod wrap;

pub use adapter::Adapter;
pub use background::run;
pub use watchers::EventQueue;
