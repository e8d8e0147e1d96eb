//! Messages of a host: answers, and events of its terminals.

use super::error::{Malformed, TooLarge};
use super::field::{Field, ListItem, Rest};
use super::frame::{Frame, frame};
use super::numbers::{Outcome, Phase, RecordKind, ReplyCode, Shell, Stream};
use super::sections::Sections;

messages! {
    /// Host to server. `Started`, `Waiting`, `Done`, `Sealed`, `Typed`, `StateChanged` and
    /// `Restarted` go to every connection; `Output` and the like to attached connections.
    pub enum Event {
        /// The first frame of every connection.
        128 => Hello {
            /// The host's [`VERSION`](super::VERSION).
            version: u16,
            /// The host's [`features`](super::features).
            features: u64,
            /// Random for each start of a host, the same after an upgrade in place.
            boot_id: String,
            /// The host's process id.
            pid: u32,
            /// The label that the host was started with.
            label: String,
        }
        /// The answer to a request that has no answer of its own.
        129 => Reply { /// Of the request.
            seq: u32, /// The result.
            code: ReplyCode, /// Details for people; may be empty.
            message: String }
        /// Answers `List`.
        130 => Terminals { /// Of the request.
            seq: u32, /// Every terminal of this host.
            terminals: Vec<TerminalInfo> }
        /// Bytes of a terminal.
        131 => Output { /// Which terminal.
            terminal: String, /// Of the first byte.
            offset: u64, /// When it was read.
            time_ms: u64, /// What was written.
            bytes: Vec<u8> }
        /// The screen was resized at this offset.
        132 => Resized { /// Which terminal.
            terminal: String, /// The offset in the output.
            offset: u64, /// Columns.
            cols: u16, /// Rows.
            rows: u16, /// When.
            time_ms: u64 }
        /// These offsets are missing in the log.
        133 => Gap { /// Which terminal.
            terminal: String, /// The first missing offset.
            from: u64, /// The first offset after the gap.
            to: u64 }
        /// The terminal's program has exited, and all its output was sent before.
        134 => Exited { /// Which terminal.
            terminal: String, /// The end of its output.
            offset: u64, /// The exit code; -1 if a signal ended the program.
            code: i32, /// The signal that ended it, or 0.
            signal: i32 }
        /// Answers `ReadLog`.
        135 => LogChunk { /// Of the request.
            seq: u32, /// The offset to continue at.
            next: u64, /// The end of the log.
            end: u64, /// In order. If the first record is beyond the requested offset, there is a gap.
            records: Vec<LogRecord> }
        /// A command has begun.
        136 => Started { /// Which command.
            command: String, /// In which terminal.
            terminal: String, /// The terminal's offset at that time.
            offset: u64, /// When.
            time_ms: u64 }
        /// Bytes of a command's stream.
        137 => CommandOutput { /// Which command.
            command: String, /// Which of its streams.
            stream: Stream, /// Of the first byte; beyond the end of the last frame if bytes were not kept.
            offset: u64, /// What was written.
            bytes: Vec<u8> }
        /// A command has ended.
        138 => Done {
            command: String,
            terminal: String,
            outcome: Outcome,
            /// Exit code, when it has one.
            exit_code: Option<i32>,
            /// The signal that ended it, when one did.
            signal: Option<i32>,
            /// Running time.
            duration_us: u64,
            /// Written to standard output so far.
            stdout_bytes: u64,
            /// Written to standard error so far.
            stderr_bytes: u64,
            /// The shell had to be replaced.
            shell_restarted: bool,
            /// The terminal's offset at the end.
            offset: u64,
            /// The changed sections of the shell's state.
            changed: Sections,
            removed: Vec<String>,
        }
        /// No process has the command's streams open any longer; these are their final lengths.
        139 => Sealed { /// Which command.
            command: String, /// Length of standard output.
            stdout_bytes: u64, /// Length of standard error.
            stderr_bytes: u64 }
        /// The command started or stopped waiting for input from the terminal.
        140 => Waiting { /// Which command.
            command: String, /// Whether it waits.
            waiting: bool }
        /// A command that a person typed has ended.
        141 => Typed {
            terminal: String,
            /// The command as the shell's history has it.
            text: Vec<u8>,
            /// Its exit code, when known.
            exit_code: Option<i32>,
            /// Running time.
            duration_us: u64,
            /// The terminal's offset at the end.
            offset: u64,
            /// When it ended.
            time_ms: u64,
            /// The changed sections of the shell's state.
            changed: Sections,
            removed: Vec<String>,
        }
        /// Answers `ExecRead`.
        142 => ExecChunk { /// Of the request.
            seq: u32, /// Of the first byte; beyond the requested offset if bytes were not kept.
            offset: u64, /// The offset to continue at.
            next: u64, /// There will be no bytes after `next`.
            end: bool, /// What was written.
            bytes: Vec<u8> }
        /// Answers `State`.
        143 => StateReply { /// Of the request.
            seq: u32, /// All of the shell's state.
            sections: Sections }
        /// The shell's state changed outside of any command.
        144 => StateChanged { /// Which terminal.
            terminal: String, /// The terminal's offset at that time.
            offset: u64, /// The changed sections.
            changed: Sections, /// The removed sections.
            removed: Vec<String> }
        /// Answers `Metrics`.
        145 => MetricsReply { /// Of the request.
            seq: u32, /// Names and values.
            values: Vec<(String, u64)> }
        /// The terminal has a new shell in place of one that exited.
        146 => Restarted { /// Which terminal.
            terminal: String, /// The shell's process id.
            pid: u32, /// The terminal's offset at that time.
            offset: u64, /// When.
            time_ms: u64 }
        /// Answers `Ports`.
        147 => PortsReply { /// Of the request.
            seq: u32, /// The TCP ports that programs listen on, in ascending order.
            ports: Vec<u16> }
    }
}

impl Event {
    /// Returns the `seq` of the request that this answers, or `None` if this is not an answer.
    #[must_use]
    pub fn answers(&self) -> Option<u32> {
        match self {
            Self::Reply { seq, .. }
            | Self::Terminals { seq, .. }
            | Self::LogChunk { seq, .. }
            | Self::ExecChunk { seq, .. }
            | Self::StateReply { seq, .. }
            | Self::MetricsReply { seq, .. }
            | Self::PortsReply { seq, .. } => Some(*seq),
            Self::Hello { .. }
            | Self::Output { .. }
            | Self::Resized { .. }
            | Self::Gap { .. }
            | Self::Exited { .. }
            | Self::Started { .. }
            | Self::CommandOutput { .. }
            | Self::Done { .. }
            | Self::Sealed { .. }
            | Self::Waiting { .. }
            | Self::Typed { .. }
            | Self::StateChanged { .. }
            | Self::Restarted { .. } => None,
        }
    }
}

records! {
    /// A terminal in the answer to `List`.
    pub struct TerminalInfo {
        pub terminal: String,
        /// Its program's process id; 0 when it has ended.
        pub pid: u32,
        pub cols: u16,
        pub rows: u16,
        /// The first offset in its log.
        pub first_offset: u64,
        /// The offset after its last byte.
        pub end_offset: u64,
        /// The offset up to which the log is on stable storage.
        pub durable_offset: u64,
        /// Its program has exited, with `code` and `signal`.
        pub exited: bool,
        /// Exit code; -1 when a signal ended it.
        pub code: i32,
        /// The signal that ended it, or 0.
        pub signal: i32,
        /// The kind of program.
        pub shell: Shell,
        /// The shell runs a command, or a person's program.
        pub busy: bool,
        /// When it was opened.
        pub opened_ms: u64,
        /// When it last wrote something.
        pub output_ms: u64,
        /// The directory of its cgroup; empty for none.
        pub cgroup: Vec<u8>,
        /// Commands that were not removed by `ExecForget`.
        pub commands: Vec<CommandInfo>,
    }

    /// A command in the answer to `List`; `ExecWatch` reports the rest.
    pub struct CommandInfo {
        pub command: String,
        /// The command's phase.
        pub phase: Phase,
        /// Written to standard output so far.
        pub stdout_bytes: u64,
        /// Written to standard error so far.
        pub stderr_bytes: u64,
    }

    /// A record of a terminal's log.
    pub struct LogRecord {
        /// The kind of record.
        pub kind: RecordKind,
        /// The offset of its first byte.
        pub offset: u64,
        /// When it was written.
        pub time_ms: u64,
        /// The bytes; for [`RecordKind::Resize`] columns and rows as two `u16`.
        pub data: Vec<u8>,
    }
}
