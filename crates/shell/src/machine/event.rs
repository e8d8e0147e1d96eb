//! The inputs of the machine ([`MachineEvent`]) and its outputs ([`Action`]).

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::job::Job;
use crate::effect::DriverEvent;
use crate::options::Errexit;
use crate::spec::Spec;
use crate::state::State;
use crate::status::End;

/// Something that happened to the shell, or that a person or a client did.
#[derive(Debug)]
pub enum MachineEvent<'a> {
    /// The shell has read its rc file.
    Ready,
    /// The shell left a record of a run: an exit code, or only that the run has begun.
    Record {
        number: u64,
        status: Option<i32>,
    },
    /// The shell recorded that it saved the half-typed line.
    Stashed,
    /// The drive file has begun: it created its `begun` file.
    Begun,
    /// The state FIFO was read.
    DumpRead {
        /// The whole dump has arrived.
        complete: bool,
    },
    Exited {
        code: Option<i32>,
        signal: Option<i32>,
    },
    /// No shell could be started.
    LaunchFailed,
    /// A person's bytes are about to be typed.
    Typed(&'a [u8]),
    /// The terminal printed something.
    Printed(&'a [u8]),
    /// [`Machine::deadline`](super::Machine::deadline) may have passed.
    Tick,
    /// A client submitted a command.
    Exec(Box<Spec>),
    /// A client submitted a script.
    Apply {
        token: u64,
        script: Vec<u8>,
    },
    /// A client cancelled a command.
    Cancel(&'a str),
    /// A client withdrew a command that may still be queued.
    Withdraw(&'a str),
    /// A client signals the running command.
    Signal(Signal),
    /// A client wants a shell with this state.
    Replace(State),
    /// The answer to an [`Action`].
    Answer(Answer),
}

/// The answer to an action, delivered before the next event.
#[derive(Debug)]
pub enum Answer {
    /// Answers [`Action::ProbePrompt`].
    Prompt(PromptProbe),
    /// Answers [`Action::ProbeRedraw`]: whether the prompt should and can be redrawn, and whether the shell is at it.
    Redraw { wanted: bool, shown: bool },
    /// Answers [`Action::ProbeRun`].
    Run(RunProbe),
    /// Answers [`Action::ProbeDump`]: whether the whole dump has arrived, and whether the shell has left
    /// the drive file.
    Dump { complete: bool, left: bool },
    /// Answers [`Action::WithdrawKey`].
    KeyWithdrawn { begun: bool, at_prompt: bool },
    /// Answers [`Action::Start`]: the key was typed.
    Started { harmless: bool },
    /// Answers [`Action::Start`]: the files could not be written, and no key was typed.
    NotStarted,
    /// Answers [`Action::Retype`]: the files could not be written, and no key was typed.
    NotRetyped,
    /// Answers [`Action::Sweep`].
    Swept(SweepResult),
    /// Answers [`Action::Signal`]: the shell does not run the command, so no signal was sent.
    NotSignalled(Signal),
    /// Answers [`Action::Complete`]: whether a section changed that a prompt may show.
    Completed { prompt_changed: bool },
}

/// The result of probing the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptProbe {
    /// The run directory of the shell exists.
    pub files: bool,
    /// The shell waits for its next command.
    pub shown: bool,
    /// The shell has printed bytes that the host has not read.
    pub unread: bool,
}

/// The result of probing a shell during a long run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunProbe {
    /// The run directory of the shell exists.
    pub files: bool,
    /// The shell is back in its line editor.
    pub left: bool,
    /// There is no unread record.
    pub no_records: bool,
}

/// The signal that a sweep sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepSignal {
    Stop,
    Kill,
}

/// What a sweep over the processes of a run found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepResult {
    /// No process is left.
    None,
    /// Only processes that an earlier sweep found.
    Known,
    /// At least one process that no earlier sweep found.
    New,
}

/// A step for the executor. An action documented as answered is followed at once by its [`Answer`].
///
/// A probe only reads, except where [`ProbeScope`] says otherwise.
#[derive(Debug)]
pub enum Action {
    /// Probe the prompt; answered.
    ProbePrompt(ProbeScope),
    /// Check whether the prompt should and can be redrawn; answered.
    ProbeRedraw {
        stale: bool,
    },
    /// Probe the shell during a run; answered.
    ProbeRun,
    /// Check whether the shell left the drive file without dumping its state, and read the dump;
    /// answered.
    ProbeDump,
    /// Remove the drive file, then check whether it has begun; answered.
    WithdrawKey,
    /// Write the files of the current run and type the key; answered.
    Start {
        snapshot: SnapshotAge,
    },
    /// Write the drive file again and type another key; answered on failure.
    Retype,
    /// Stop or kill the processes of the run; answered.
    Sweep(SweepSignal),
    /// Send a signal to the current command; answered if it was not sent.
    Signal(Signal),
    /// Read the state FIFO; followed by [`MachineEvent::DumpRead`].
    ReadDump,
    /// Complete a run that has ended: read its state and report its end; answered.
    Complete(Box<Completion>),

    /// Kill the processes that the last sweep found.
    KillSwept,
    /// Stop the shell and begin a new series of sweeps.
    StopShell,
    KillShell,
    /// Save the terminal's modes while the line editor reads.
    SaveModes,
    /// Restore the terminal's modes for the line editor.
    RestoreModes,
    /// Turn the terminal's echo on again after the run has begun.
    RestoreEcho,
    /// Read the output that the command has written so far.
    Drain,
    /// Serve a long-running command: set the terminal's modes, feed its input, move its output to disk.
    Attend,
    /// Show on the screen how much output was omitted.
    EndCopy,
    /// Remove the line editor's last escape sequence from the command's standard error.
    TrimExitSequence,
    /// Report the end of a command that changed no state.
    Finish {
        command: String,
        end: End,
        duration: Duration,
    },
    /// Read the state, and report the command that a person typed.
    ReportTyped {
        status: i32,
        duration: Duration,
        history: HistoryUse,
    },
    /// Read the state that a shell dumps when it has started.
    TakeFirstDump,
    /// Return a command that never began to the queue.
    Requeue {
        command: String,
    },
    /// Drop the setting that made the shell exit at an idle prompt.
    ForgetAutoExit,
    /// Prepare for another shell, with a given state if there is one.
    Reset(Option<Replacement>),
    /// Start a shell; followed by [`MachineEvent::LaunchFailed`] on failure.
    Launch {
        failures: u32,
        errexit: Errexit,
    },
    /// Close the streams of all commands that have ended.
    CloseStreams,
    /// Type the key that redraws the prompt.
    TypeRedraw,
    /// Clean up after a redraw, and restore the half-typed line.
    EndRedraw {
        /// What is not shown yet.
        withheld: Vec<u8>,
        drawn: Vec<u8>,
    },
    /// Append to the terminal's output.
    Show(Vec<u8>),
    /// Report to the clients.
    Emit(DriverEvent),
}

/// What a probe of the prompt checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeScope {
    /// Only the files: the shell is known to be at its prompt.
    FilesOnly,
    /// Only the files: a key was pressed so recently that the prompt cannot be used yet.
    Unsettled,
    /// The files and the prompt. Repairs the terminal's modes if the shell needs that.
    Full,
    /// The prompt alone, without changing anything.
    ReadOnly,
}

/// Whether the snapshot of the shell's state is up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotAge {
    /// The shell has not changed since the last dump.
    Current,
    /// The shell may have changed since the last dump.
    Unknown,
}

/// Whether the shell's history contains what a person typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryUse {
    Recorded,
    /// The line begins with a blank, which may keep it out of the history.
    MayBeSkipped,
}

/// The shell that replaces one which the driver itself ended.
#[derive(Debug)]
pub enum Replacement {
    /// A shell with the state of the previous one.
    Same,
    /// A shell with another state.
    With(State),
}

/// A run that has ended.
#[derive(Debug)]
pub struct Completion {
    pub job: Job,
    pub end: End,
    /// The shell's last exit code after the run; `None` leaves it unchanged.
    pub status: Option<i32>,
    pub started: Instant,
    pub ended: Instant,
    pub source: StateSource,
}

/// Where the state after a run comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateSource {
    /// The shell dumped it.
    Dump,
    /// The command was harmless: only the exit code and the limits can differ.
    Harmless,
    /// The shell is gone: only the exit code is known.
    ShellGone,
}
