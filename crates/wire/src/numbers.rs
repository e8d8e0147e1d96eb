//! Enumerations of the protocol.

use super::error::Malformed;
use super::field::{Field, Rest};

numbers! {
    /// How a request ended.
    pub enum ReplyCode: u16 {
        /// Success.
        0 => Ok,
        /// The `write_id` was applied before; nothing was written again.
        1 => AlreadyApplied,
        /// The request does not match its type, or a value in it is invalid.
        2 => BadRequest,
        /// This host has no terminal with that id.
        3 => NoSuchTerminal,
        /// A terminal with that id exists already.
        4 => Exists,
        /// The kernel has no more PTYs (`kernel.pty.max`).
        5 => NoMoreTerminals,
        /// This host has reached its limit of terminals.
        6 => TooManyTerminals,
        /// The process or the machine has no more file descriptors.
        7 => NoMoreDescriptors,
        /// The kernel refused another process.
        8 => NoMoreProcesses,
        /// The program does not exist or may not be executed.
        9 => NotExecutable,
        /// The terminal's program has ended.
        10 => Exited,
        /// The program does not read, and the input buffer is full; nothing was accepted.
        11 => InputFull,
        /// The shell is busy, and the request asked not to wait.
        12 => Busy,
        /// The command queue is full.
        13 => QueueFull,
        /// The terminal runs no shell that exec can drive.
        14 => NotDrivable,
        /// This host has no command with that id.
        15 => NoSuchCommand,
        /// This host does not know the request.
        16 => Unsupported,
        /// The terminal's directory cannot be used.
        17 => Storage,
        /// The terminal's program, or the command, is running.
        18 => StillRunning,
        /// The offset is beyond the end.
        19 => BadOffset,
        /// Out of memory.
        20 => NoMemory,
        /// The new executable does not work; the old one continues.
        21 => BadExecutable,
        /// The command has ended, or its input is closed.
        22 => CommandEnded,
        /// Any other error; the message describes it.
        23 => Failed,
        /// A command with that id exists already.
        24 => CommandExists,
        /// No program waits for input from the terminal; nothing was typed.
        25 => NotReading,
        /// What is typed would be shown on the screen; nothing was typed.
        26 => Visible,
        /// The user has no more epoll watches (`fs.epoll.max_user_watches`).
        27 => NoMoreWatches,
    }
}

numbers! {
    /// The kind of program in a terminal, which decides whether commands can run in it.
    pub enum Shell: u8 {
        /// Any program; its exit ends the terminal.
        0 => Plain,
        /// GNU bash.
        1 => Bash,
        /// zsh.
        2 => Zsh,
        /// dash, busybox sh or any other POSIX shell.
        3 => Sh,
    }
}

numbers! {
    /// The source of a command's standard input.
    pub enum StdinMode: u8 {
        /// `/dev/null`.
        0 => Null,
        /// The given bytes, then the end.
        1 => Given,
        /// The given bytes, then those of `ExecStdin`.
        2 => Open,
    }
}

numbers! {
    /// What to do when the shell is running something else.
    pub enum IfBusy: u8 {
        /// Wait in the terminal's queue.
        0 => Wait,
        /// Answer [`ReplyCode::Busy`].
        1 => Fail,
    }
}

numbers! {
    /// How a command ended.
    pub enum Outcome: u8 {
        /// It ran to its end.
        0 => Finished,
        /// It timed out; the state is restored to that before it.
        1 => TimedOut,
        /// It started, and its end is unknown.
        2 => Lost,
        /// It never started.
        3 => NotStarted,
        /// It was cancelled; if it had started, it was ended as by a timeout.
        4 => Cancelled,
    }
}

numbers! {
    /// One of a command's two output streams.
    pub enum Stream: u8 {
        /// Standard output.
        1 => Stdout,
        /// Standard error.
        2 => Stderr,
    }
}

numbers! {
    /// The phase of a command.
    pub enum Phase: u8 {
        /// It waits for the shell.
        0 => Queued,
        /// It runs.
        1 => Running,
        /// It has ended; a process it left behind may still write to its streams.
        2 => Done,
        /// It has ended and its streams are closed.
        3 => Sealed,
    }
}

numbers! {
    /// The kind of a log record.
    pub enum RecordKind: u8 {
        /// Bytes that the program wrote.
        1 => Output,
        /// The screen was resized at this offset; takes no offsets itself.
        2 => Resize,
        /// Bytes that the host added to the screen, in the same offset space as output.
        3 => Notice,
    }
}
