//! Queries about the state of a machine.

use super::Machine;
use super::job::Job;
use super::phase::MachinePhase;
use super::queue::{Queue, QueuedJob};
use super::run::Run;

/// Whether a new command would have to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    Free,
    Busy,
    /// Busy if a program is in the foreground, or if a line was `entered` and the shell is not at its
    /// prompt.
    DependsOnTerminal {
        entered: bool,
    },
}

/// Where a command is in the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandPosition {
    Queued,
    Running,
    Absent,
}

impl Machine {
    /// Returns whether the shell is about to leave a record.
    pub fn awaits_record(&self) -> bool {
        match self.phase {
            MachinePhase::Starting(_) | MachinePhase::Running(_) | MachinePhase::Redrawing(_) => {
                true
            }
            MachinePhase::Absent
            | MachinePhase::Idle(_)
            | MachinePhase::Ending(_)
            | MachinePhase::Over => false,
        }
    }

    /// Returns whether the machine can be handed over. A machine in a transition cannot, for a short time.
    pub fn can_hand_over(&self) -> bool {
        let script = |queued: &QueuedJob| matches!(queued, QueuedJob::Script { .. });
        !self.queue.iter().any(script)
            && match &self.phase {
                MachinePhase::Idle(_) | MachinePhase::Over => true,
                MachinePhase::Running(run) => matches!(run.job, Job::Command { .. }),
                MachinePhase::Absent
                | MachinePhase::Starting(_)
                | MachinePhase::Redrawing(_)
                | MachinePhase::Ending(_) => false,
            }
    }

    pub fn availability(&self) -> Availability {
        match &self.phase {
            MachinePhase::Absent | MachinePhase::Running(_) | MachinePhase::Ending(_) => {
                Availability::Busy
            }
            MachinePhase::Over => Availability::Free,
            MachinePhase::Idle(_) | MachinePhase::Starting(_) | MachinePhase::Redrawing(_)
                if !self.queue.is_empty() =>
            {
                Availability::Busy
            }
            MachinePhase::Idle(_) => {
                Availability::DependsOnTerminal { entered: self.keyboard.entered.is_some() }
            }
            MachinePhase::Starting(_) | MachinePhase::Redrawing(_) => Availability::Free,
        }
    }

    pub fn position_of(&self, command: &str) -> CommandPosition {
        let runs =
            |run: &Run| matches!(&run.job, Job::Command { spec, .. } if spec.command == command);
        if self.queue.has_command(command) {
            CommandPosition::Queued
        } else if self.run().is_some_and(runs) {
            CommandPosition::Running
        } else {
            CommandPosition::Absent
        }
    }

    pub fn is_over(&self) -> bool {
        matches!(self.phase, MachinePhase::Over)
    }

    /// Returns whether a drive file was typed that has not begun.
    pub fn awaits_begun(&self) -> bool {
        match &self.phase {
            MachinePhase::Running(run) => !run.has_begun(),
            MachinePhase::Ending(ending) => !ending.run.has_begun(),
            MachinePhase::Absent
            | MachinePhase::Starting(_)
            | MachinePhase::Idle(_)
            | MachinePhase::Redrawing(_)
            | MachinePhase::Over => false,
        }
    }

    /// Returns the current run.
    pub fn run(&self) -> Option<&Run> {
        match &self.phase {
            MachinePhase::Running(run) => Some(run),
            MachinePhase::Absent
            | MachinePhase::Starting(_)
            | MachinePhase::Idle(_)
            | MachinePhase::Redrawing(_)
            | MachinePhase::Ending(_)
            | MachinePhase::Over => None,
        }
    }

    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn key(&self) -> usize {
        self.key
    }

    pub fn ends_with_shell(&self) -> bool {
        self.ends_with_shell
    }

    /// Returns whether the line editor holds an unfinished line.
    pub fn has_half_typed(&self) -> bool {
        self.keyboard.half_typed
    }

    /// Returns whether a person may have run a command since the state was last read.
    pub fn has_entered(&self) -> bool {
        self.keyboard.entered.is_some()
    }
}
