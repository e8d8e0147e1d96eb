//! Live terminals: open, attach, input, resize, exec, state versions.
//!
//! ```text
//!   Terminals ──▶ Live (one per terminal) ──▶ Owner: screen, window, keyboard
//!                    │                    └─▶ Scribe: receipts and versions
//!                    └─▶ HostLink (one per host, shared)
//! ```
//! A terminal is a row first. Its live end is started when it is needed, from the state in the
//! store, and is found again after a restart of the server. No shell runs in this process.

mod alive;
mod checkpoint;
mod drive;
mod error;
mod exec;
mod execution;
mod flight;
mod history;
mod limit;
mod link;
mod lost_hosts;
mod open;
mod options;
mod output;
mod output_source;
mod owner;
mod reap;
mod recovery;
mod runtime;
mod scribe;
mod shell_start;
pub mod state;
mod strand;
mod terminals;
mod thread_runtimes;
pub mod utf8;
mod watch;
mod window;

pub use drive::{ClientId, ClientMode};
pub use error::TerminalError;
pub use execution::{Execution, Receipt};
pub use flight::CommandStage;
pub use history::Offsets;
pub use open::NewTerminal;
pub use options::{BusyPolicy, ExecOptions, IfAbandoned, MAX_OUTPUT, Naming, Resume, Stdin};
pub use output_source::Chunk;
pub use owner::{Format, OwnerRequest, Picture, TerminalFacts};
pub use recovery::Recovery;
pub use shell_start::{ShellSetup, ShellSetupFn};
pub use terminals::{TerminalSettings, Terminals, directory};
pub use watch::{WatchFrom, Watcher, WatcherGone, WatcherUpdate};
pub use window::WatchEvent;
