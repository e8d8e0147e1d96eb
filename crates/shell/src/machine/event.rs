//! What happens to a shell, and what the machine answers with.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::job::Job;
use crate::effect::Happened;
use crate::spec::Spec;
use crate::state::State;
use crate::status::End;

#[derive(Debug)]
pub enum MachineEvent<'a> {
    /// The shell has read its rc file.
    Ready,
    /// The shell left a record of a run: an exit code, or only that the run has begun.
    Record {
        number: u64,
        status: Option<i32>,
    },
    /// The shell recorded that it put the half-typed line away.
    Stashed,
    /// The drive file has begun, as the file it leaves shows.
    Begun,
    /// The state FIFO was read, and a whole dump was or was not there.
    DumpRead {
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
    /// A client withdrew a command if it is still queued.
    Withdraw(&'a str),
    /// A client signals the running command.
    Signal(Signal),
    /// A client wants a shell with this state.
    Replace(State),
    /// The answer to an [`Action`].
    Answer(Answer),
}

/// The answer to an action, delivered before anything else happens.
#[derive(Debug)]
pub enum Answer {
    /// To [`Action::ProbePrompt`].
    Prompt(PromptProbe),
    /// To [`Action::ProbeRedraw`]: the shell is at its prompt, which should and can be redrawn.
    Redraw(bool),
    /// To [`Action::ProbeRun`].
    Run(RunProbe),
    /// To [`Action::ProbeDump`].
    Dump { complete: bool, left: bool },
    /// To [`Action::WithdrawKey`].
    KeyWithdrawn { begun: bool, at_prompt: bool },
    /// To [`Action::Start`]: the key is typed.
    Started { harmless: bool },
    /// To [`Action::Start`]: the files could not be written, and no key was typed.
    NotStarted,
    /// To [`Action::Retype`]: the files could not be written, and no key was typed.
    NotRetyped,
    /// To [`Action::Sweep`].
    Swept(Swept),
    /// To [`Action::Signal`]: the shell is not within the command, so no signal was sent.
    NotSignalled(Signal),
    /// To [`Action::Complete`]: whether a section changed that a prompt may show.
    Completed { prompt_changed: bool },
}

/// What the terminal and the files of a shell look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptProbe {
    /// The files that the shell is driven by exist.
    pub files: bool,
    /// The shell waits for its next command.
    pub shown: bool,
    /// The shell has printed bytes that the host has not read.
    pub unread: bool,
}

/// What the shell looks like while a run takes its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunProbe {
    /// The files that the shell is driven by exist.
    pub files: bool,
    /// The shell is back in its line editor.
    pub left: bool,
    /// There is no record that was not read.
    pub no_records: bool,
}

/// What a sweep over the processes of a run found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swept {
    /// No process is left.
    None,
    /// Only processes that an earlier sweep found.
    Known,
    /// At least one process that no earlier sweep found.
    New,
}

/// A step for the executor. An action documented as answered is followed at once by its [`Answer`].
#[derive(Debug)]
pub enum Action {
    /// Look at the prompt; answered.
    ProbePrompt(Look),
    /// Look whether the prompt should and can be redrawn; answered.
    ProbeRedraw {
        stale: bool,
    },
    /// Look at the shell during a run; answered.
    ProbeRun,
    /// Look whether the shell left a run without its state, and read the dump; answered.
    ProbeDump,
    /// Remove the drive file, then look whether it has begun; answered.
    WithdrawKey,
    /// Write the files of the current run and type the key; answered.
    Start {
        unchanged: bool,
    },
    /// Write the drive file again and type another key; answered on failure.
    Retype,
    /// Stop or kill the processes of the run; answered.
    Sweep {
        kill: bool,
    },
    /// Send a signal to the current command; answered if it was not sent.
    Signal(Signal),
    /// Read the state FIFO; followed by [`MachineEvent::DumpRead`].
    ReadDump,
    /// Settle a run that has ended: take over the state and report; answered.
    Complete(Box<Completion>),

    /// Kill the processes that the last sweep found.
    KillSwept,
    /// Stop the shell and begin a new series of sweeps.
    StopShell,
    KillShell,
    /// Remember the terminal's modes: its line editor reads.
    SaveModes,
    /// Give the line editor its modes back.
    RestoreModes,
    /// Let the terminal echo again: the run has begun.
    RestoreEcho,
    /// Read what the command has written so far.
    Drain,
    /// Serve a command that takes its time: terminal modes, input, output on disk.
    Attend,
    /// Show that output was left out, if any was.
    EndCopy,
    /// Take the line editor's last escape sequence out of the command's standard error.
    TrimGoodbye,
    /// Report a command's end that changed no state.
    Finish {
        command: String,
        end: End,
        duration: Duration,
    },
    /// Report what a person typed, and take over the state.
    ReportTyped {
        status: i32,
        duration: Duration,
        hidden: bool,
    },
    /// Take over the state that a shell reports when it has started.
    TakeFirstDump,
    /// Make a command queued again that never began.
    Requeue {
        command: String,
    },
    /// Drop the setting that made the shell exit by itself.
    ForgetAutoExit,
    /// Prepare for another shell, with a given state if there is one.
    Reset(Option<Replacement>),
    /// Start a shell; followed by [`MachineEvent::LaunchFailed`] on failure.
    Launch {
        failures: u32,
        after_death: bool,
    },
    /// Close the streams of all commands that have ended.
    CloseStreams,
    /// Type the key that redraws the prompt.
    TypeRedraw,
    /// Clean up after a redrawn prompt, and put the half-typed line back.
    EndRedraw {
        drawn: Vec<u8>,
    },
    /// Append to the terminal's output.
    Show(Vec<u8>),
    /// Report to the clients.
    Emit(Happened),
}

/// How to look at the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The prompt is known to be there: look for the files alone.
    FilesOnly,
    /// A key was pressed a moment ago: look for the files alone, the prompt is not usable yet.
    Unsettled,
    /// Look at everything, and repair the terminal's modes if the shell needs that.
    Everything,
    /// Look at everything, and change nothing.
    Passively,
}

/// The shell that follows one which the driver itself ends.
#[derive(Debug)]
pub enum Replacement {
    /// One with the state of the one before.
    Same,
    /// One with another state.
    With(State),
}

/// A run that has ended.
#[derive(Debug)]
pub struct Completion {
    pub job: Job,
    pub end: End,
    /// The shell's last exit code from here on; `None` leaves it as it was.
    pub status: Option<i32>,
    pub started: Instant,
    pub ended: Instant,
    pub source: StateSource,
}

/// How the state after a run is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateSource {
    /// The shell dumped it.
    Dump,
    /// The command was harmless: only its exit code and the limits can differ.
    Harmless,
    /// The shell is gone: only the exit code is known.
    ShellGone,
}
