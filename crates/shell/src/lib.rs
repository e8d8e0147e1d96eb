//! Commands inside a live shell: exact output and exit code, and state that outlives the shell.
//!
//! A [`Driver`] belongs to one terminal. It never blocks, starts no shell and writes to no PTY: the host's
//! loop reports what happened, and carries out the [`Effect`]s that the driver returns.
//!
//! ```text
//!  exec ─▶ queue ─▶ command file, drive file ─▶ Type(key) ─▶ the shell sources the drive file
//!                                                              ├─ out, err  FIFOs ─▶ Output
//!                                                              ├─ ctl/N.STATUS  (its name is the record)
//!                                                              └─ state  FIFO ─▶ sections
//! ```
//! The key is typed only while the shell's own line editor reads the terminal. Only the host types, so a
//! shell that was seen there stays there: the check is of a level, not of an edge.

mod bash;
mod commands;
mod defined;
mod dialect;
mod drive;
mod driver;
mod dump;
mod effect;
mod executor;
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
pub mod place;
mod procs;
mod prompt;
pub mod quote;
pub mod remote;
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
pub use effect::{Effect, Happened, Launch};
pub use executor::BEGAN;
pub use image::Image;
pub use kind::Kind;
pub use output::{Keep, Output, Piece};
pub use procs::is_first_process;
pub use screen::ScreenCopy;
pub use spec::{At, QUEUE, Setup, Spec};
pub use state::{Changes, State};
