//! Requests of the server to a host.

use super::error::{Malformed, TooLarge};
use super::field::{Field, Rest};
use super::frame::{Frame, frame};
use super::numbers::{IfBusy, Shell, StdinMode, Stream};
use super::sections::Sections;

messages! {
    /// Server to host. Every request except `Hello` has a `seq` that its one answer repeats. The answer
    /// is a [`Reply`](super::Event::Reply) unless another is named.
    pub enum Request {
        /// Sent once, after the host's own `Hello`.
        1 => Hello {
            /// The server's [`VERSION`](super::VERSION).
            version: u16,
            /// The server's [`features`](super::features).
            features: u64,
        }
        /// Answered at once.
        2 => Ping { /// Repeated in the answer.
            seq: u32 }
        /// Starts a program on a new PTY.
        3 => Open {
            /// Repeated in the answer.
            seq: u32,
            /// The terminal's id; may be used as a file name.
            terminal: String,
            /// The program and its arguments; the program is looked up in `PATH` of `env`.
            argv: Vec<Vec<u8>>,
            /// The working directory; `HOME` or `/` if it does not exist.
            cwd: Vec<u8>,
            /// The whole environment. `TERM`, `COLORTERM`, `STEAD` and `STEAD_TERMINAL` are added.
            env: Vec<(Vec<u8>, Vec<u8>)>,
            /// Columns of the screen.
            cols: u16,
            /// Rows of the screen.
            rows: u16,
            /// The terminal's directory; `log` and `commands` in it are the host's.
            dir: Vec<u8>,
            /// The maximum size of the log in bytes.
            log_limit: u64,
            /// The first offset, unless the log in the directory reaches further.
            base_offset: u64,
            /// The kind of program.
            shell: Shell,
            /// The state a shell starts with.
            state: Sections,
            /// Bytes shown on the screen before the program's own.
            notice: Vec<u8>,
        }
        /// Ends every process of a terminal and removes it; its directory is kept.
        4 => Close { /// Repeated in the answer.
            seq: u32, /// Which terminal.
            terminal: String }
        /// Answered by [`Terminals`](super::Event::Terminals).
        5 => List { /// Repeated in the answer.
            seq: u32 }
        /// Attaches to a terminal from an offset on: a `Reply` is followed by `Output`, `Resized` and `Gap`
        /// in order, and by `Exited` at the end. A second `Attach` moves the cursor.
        6 => Attach { /// Repeated in the answer.
            seq: u32, /// Which terminal.
            terminal: String, /// The first offset wanted.
            from: u64 }
        /// Reverts `Attach`.
        7 => Detach { /// Repeated in the answer.
            seq: u32, /// Which terminal.
            terminal: String }
        /// Types bytes; at most once.
        8 => Input {
            /// Repeated in the answer.
            seq: u32,
            terminal: String,
            /// A write with the same id is applied only once; empty for none.
            write_id: String,
            /// The bytes to type, at most [`MAX_DATA`](super::MAX_DATA) bytes.
            data: Vec<u8>,
        }
        /// Changes the screen's size; the program gets SIGWINCH.
        9 => Resize { /// Repeated in the answer.
            seq: u32, /// Which terminal.
            terminal: String, /// Columns, not 0.
            cols: u16, /// Rows, not 0.
            rows: u16 }
        /// Signals the terminal's foreground process group.
        10 => Signal { /// Repeated in the answer.
            seq: u32, /// Which terminal.
            terminal: String, /// The signal's number.
            signal: i32 }
        /// Confirms that the exit status is stored: the terminal may be forgotten.
        11 => AckExit { /// Repeated in the answer.
            seq: u32, /// Which terminal.
            terminal: String }
        /// Allows the host to delete the log before this offset.
        12 => Trim { /// Repeated in the answer.
            seq: u32, /// Which terminal.
            terminal: String, /// The first offset to keep.
            upto: u64 }
        /// Answered by [`LogChunk`](super::Event::LogChunk), or by a `Reply` on failure.
        13 => ReadLog { /// Repeated in the answer.
            seq: u32, /// Which terminal.
            terminal: String, /// The first offset wanted.
            from: u64, /// The maximum number of data bytes.
            limit: u32 }
        /// Runs a command in the live shell. The answer reports that it was accepted; `Started` and `Done`
        /// follow.
        14 => Exec {
            /// Repeated in the answer.
            seq: u32,
            terminal: String,
            /// The command's id; may be used as a file name.
            command: String,
            text: Vec<u8>,
            /// Milliseconds until it is ended; 0 for never.
            timeout_ms: u64,
            /// The source of standard input.
            stdin: StdinMode,
            /// The first bytes of standard input.
            stdin_data: Vec<u8>,
            /// Variables for this command alone.
            env: Vec<(Vec<u8>, Vec<u8>)>,
            /// Directory for this command alone; empty for the shell's own.
            cwd: Vec<u8>,
            /// What to do when the shell is busy.
            if_busy: IfBusy,
            /// Bytes kept from the start of each stream.
            keep_head: u64,
            /// Bytes kept from the end of each stream.
            keep_tail: u64,
        }
        /// Feeds a command opened with [`StdinMode::Open`]; at most once.
        15 => ExecStdin { /// Repeated in the answer.
            seq: u32, /// Which command.
            command: String, /// A write with the same id is applied only once; empty for none.
            write_id: String, /// At most [`MAX_DATA`](super::MAX_DATA) bytes.
            data: Vec<u8>, /// Whether this is the end of standard input.
            eof: bool }
        /// Signals the processes of a command.
        16 => ExecSignal { /// Repeated in the answer.
            seq: u32, /// Which command.
            command: String, /// The signal's number.
            signal: i32 }
        /// Answered by [`ExecChunk`](super::Event::ExecChunk), or by a `Reply` on failure.
        17 => ExecRead { /// Repeated in the answer.
            seq: u32, /// Which command.
            command: String, /// Which of its streams.
            stream: Stream, /// The first offset wanted.
            from: u64, /// The maximum number of bytes.
            limit: u32 }
        /// Watches a command: a `Reply` is followed by those of `Started`, `CommandOutput`, `Waiting`, `Done`
        /// and `Sealed` that have happened, then by the rest as it happens.
        18 => ExecWatch { /// Repeated in the answer.
            seq: u32, /// Which command.
            command: String, /// The first offset of standard output wanted.
            from_out: u64, /// The first offset of standard error wanted.
            from_err: u64 }
        /// Reverts `ExecWatch`.
        19 => ExecUnwatch { /// Repeated in the answer.
            seq: u32, /// Which command.
            command: String }
        /// Drops a queued command; ends a running one as a timeout does.
        20 => ExecCancel { /// Repeated in the answer.
            seq: u32, /// Which command.
            command: String }
        /// Confirms that the command's end is stored: its output may be deleted.
        21 => ExecForget { /// Repeated in the answer.
            seq: u32, /// Which command.
            command: String }
        /// Answered by [`StateReply`](super::Event::StateReply), or by a `Reply` on failure.
        22 => State { /// Repeated in the answer.
            seq: u32, /// Which terminal.
            terminal: String }
        /// Runs a script in the live shell without showing it.
        23 => Apply { /// Repeated in the answer.
            seq: u32, /// Which terminal.
            terminal: String, /// Shell text.
            script: Vec<u8> }
        /// Replaces the shell by one with this state.
        24 => Replace { /// Repeated in the answer.
            seq: u32, /// Which terminal.
            terminal: String, /// The state the shell starts with.
            state: Sections }
        /// Replaces the host's executable in place. The answer precedes the replacement, which closes all
        /// connections.
        25 => Upgrade { /// Repeated in the answer.
            seq: u32, /// The executable.
            path: Vec<u8> }
        /// Answered by [`MetricsReply`](super::Event::MetricsReply).
        26 => Metrics { /// Repeated in the answer.
            seq: u32 }
        /// Ends every terminal, then the host.
        27 => Shutdown { /// Repeated in the answer.
            seq: u32 }
        /// Shows bytes on the screen that no program wrote.
        28 => Show { /// Repeated in the answer.
            seq: u32, /// Which terminal.
            terminal: String, /// At most [`MAX_DATA`](super::MAX_DATA) bytes.
            data: Vec<u8> }
        /// Makes a terminal end when its shell exits, instead of starting another shell. A shell that
        /// the host itself replaces (after a timeout or by `Replace`) does not count.
        29 => EndWithProgram { /// Repeated in the answer.
            seq: u32, /// Which terminal.
            terminal: String }
        /// Drops a command that is still queued; it ends as [`Outcome::NotStarted`](super::Outcome).
        /// Refused with [`Code::StillRunning`](super::Code) once it has started.
        30 => ExecWithdraw { /// Repeated in the answer.
            seq: u32, /// Which command.
            command: String }
        /// Types a secret into the program that reads the terminal; at most once. Refused with
        /// [`ReplyCode::NotReading`](super::ReplyCode) or [`ReplyCode::Visible`](super::ReplyCode) unless a
        /// program waits for a line that the terminal does not echo.
        31 => TypeSecret {
            /// Repeated in the answer.
            seq: u32,
            terminal: String,
            /// A write with the same id is applied only once; empty for none.
            write_id: String,
            /// The bytes to type, at most [`MAX_DATA`](super::MAX_DATA) bytes.
            data: Vec<u8>,
        }
        /// Answered by [`PortsReply`](super::Event::PortsReply), or by a `Reply` on failure.
        32 => Ports { /// Repeated in the answer.
            seq: u32 }
    }
}

impl Request {
    /// Returns the number that the answer repeats, or `None` for `Hello`, which has no answer.
    #[must_use]
    pub fn seq(&self) -> Option<u32> {
        match self {
            Self::Hello { .. } => None,
            Self::Ping { seq }
            | Self::Open { seq, .. }
            | Self::Close { seq, .. }
            | Self::List { seq }
            | Self::Attach { seq, .. }
            | Self::Detach { seq, .. }
            | Self::Input { seq, .. }
            | Self::Resize { seq, .. }
            | Self::Signal { seq, .. }
            | Self::AckExit { seq, .. }
            | Self::Trim { seq, .. }
            | Self::ReadLog { seq, .. }
            | Self::Exec { seq, .. }
            | Self::ExecStdin { seq, .. }
            | Self::ExecSignal { seq, .. }
            | Self::ExecRead { seq, .. }
            | Self::ExecWatch { seq, .. }
            | Self::ExecUnwatch { seq, .. }
            | Self::ExecCancel { seq, .. }
            | Self::ExecWithdraw { seq, .. }
            | Self::ExecForget { seq, .. }
            | Self::State { seq, .. }
            | Self::Apply { seq, .. }
            | Self::Replace { seq, .. }
            | Self::Upgrade { seq, .. }
            | Self::Metrics { seq }
            | Self::Ports { seq }
            | Self::Shutdown { seq }
            | Self::Show { seq, .. }
            | Self::EndWithProgram { seq, .. }
            | Self::TypeSecret { seq, .. } => Some(*seq),
        }
    }
}
