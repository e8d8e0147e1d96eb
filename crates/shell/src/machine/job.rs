//! What a shell is driven for.

use std::time::Instant;

use crate::spec::Spec;
use crate::status::End;

/// What one run of a drive file is for.
#[derive(Debug)]
pub enum Job {
    Command {
        spec: Box<Spec>,
        attempt: u32,
    },
    /// Reading the state after a person's command.
    Capture,
    /// Reading the state after a command that was interrupted.
    Reread {
        command: String,
        started: Instant,
        end: End,
    },
    /// A client's script, which has no output.
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
