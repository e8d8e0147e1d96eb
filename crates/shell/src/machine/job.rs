//! The purpose of a run.

use std::time::Instant;

use crate::spec::Spec;
use crate::status::End;

/// The purpose of one run of a drive file.
#[derive(Debug)]
pub enum Job {
    Command {
        spec: Box<Spec>,
        attempt: u32,
    },
    /// Reads the state after a person's command.
    Capture,
    /// Reads the state after a command that was interrupted.
    Reread {
        command: String,
        started: Instant,
        end: End,
    },
    /// A client's script, whose output is discarded.
    Script {
        token: u64,
        script: Vec<u8>,
    },
}

impl Job {
    /// Returns the id of the command that the run belongs to.
    pub fn command(&self) -> Option<&str> {
        match self {
            Self::Command { spec, .. } => Some(&spec.command),
            Self::Reread { command, .. } => Some(command),
            Self::Capture | Self::Script { .. } => None,
        }
    }
}
