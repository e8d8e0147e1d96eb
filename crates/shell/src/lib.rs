//! Commands inside a live shell: exact output and exit code, and state that outlives the shell.
//!
//! A [`Driver`] belongs to one terminal. It never blocks, starts no shell and writes to no PTY: the host's
//! loop reports events to it, and carries out the [`Effect`]s that it returns.
//!
//! ```text
//!  exec ─▶ queue ─▶ command file, drive file ─▶ Type(key) ─▶ the shell sources the drive file
//!                                                              ├─ out, err  FIFOs ─▶ Output
//!                                                              ├─ ctl/N.STATUS  (its name is the record)
//!                                                              └─ state  FIFO ─▶ sections
//! ```
//! The key is typed only while the shell's own line editor reads the terminal. Only the host writes to the
//! PTY, so a shell that was found in its line editor stays there: the check is level-triggered.

mod bash;
mod commands;
mod defined;
mod dialect;
mod drive;
mod driver;
mod dump;
mod effect;
mod executor;
mod exit_sequence;
mod files;
mod handover;
mod harmless;
mod image;
mod kind;
mod launch;
#[cfg(test)]
mod lexer_tests;
mod limits;
mod machine;
mod modes;
mod options;
mod output;
mod paths;
mod pipes;
mod procs;
mod prompt;
pub mod quote;
pub mod remote;
pub mod run_dir;
mod run_files;
mod screen;
mod sh;
mod snapshot;
mod spec;
mod state;
mod status;
mod stdin;
mod streams;
mod sweep;
mod unclosed;
mod zsh;

pub use driver::Driver;
pub use effect::{DriverEvent, Effect, Launch};
pub use executor::{BEGAN, now_ms};
pub use image::Image;
pub use kind::Kind;
pub use output::{Keep, Output, Piece};
pub use procs::{Process, all as all_processes, is_first_process};
pub use prompt::{TerminalReader, reader};
pub use screen::{MAX_HELD_BYTES, ScreenCopy};
pub use spec::{At, MAX_QUEUED_COMMANDS, Setup, Spec};
pub use state::{Changes, State};
pub use stdin::StdinEnd;
