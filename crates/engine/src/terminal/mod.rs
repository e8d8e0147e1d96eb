//! Live terminals: open, attach, input, resize, exec, state versions.
//!
//! ```text
//!   Terminals ──▶ LiveTerminal (one per terminal) ──▶ Owner: screen, window, clients
//!                    │                            └─▶ StateRecorder: receipts and versions
//!                    └─▶ HostLink (one per host, shared)
//! ```
//! A terminal is a row first. Its shell is started on first use from the state in the store, and is found again
//! after a restart of the server. No shell runs in this process.

mod checkpoint;
mod client;
mod connect;
mod drive;
mod end;
mod error;
mod exec;
mod execution;
mod flight;
mod handover;
mod history;
mod limit;
mod link;
mod lost;
mod lost_hosts;
mod open;
mod options;
mod output;
mod output_source;
mod owner;
mod ports;
mod reap;
mod recorder;
mod recovery;
mod runtime;
mod search;
mod shell_connection;
mod shell_start;
pub mod state;
mod state_sections;
mod terminals;
#[cfg(test)]
pub mod test_support;
mod thread_runtimes;
mod watch;
mod window;

pub use drive::{ClientId, ClientMode};
pub use error::{KernelResource, TerminalError};
pub use execution::{Execution, Receipt};
pub use flight::{CommandStage, CurrentCommand};
pub use history::Offsets;
pub use link::LinkError;
pub use open::NewTerminal;
pub use options::{
    BusyPolicy, ExecOptions, IfAbandoned, MAX_OUTPUT, Naming, OutputDelivery, Resume, Stdin,
    StdinAfterWrite,
};
pub use output_source::Chunk;
pub use owner::{Format, OwnerRequest, Picture, TerminalFacts};
pub use recovery::Recovery;
pub use search::{
    FoundLine, LineSource, SearchBudget, SearchHit, SearchLimit, SearchPage, SearchRequest,
};
pub use shell_start::{ShellSetup, ShellSetupFn};
pub use terminals::{TerminalSettings, Terminals, directory};
pub use watch::{WatchFrom, Watcher, WatcherGone, WatcherUpdate};
pub use window::WatchEvent;
