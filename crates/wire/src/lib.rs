//! The protocol between server and host: its messages, and how they are encoded.
//!
//! ```text
//! frame:  u32 length of what follows | u8 type | payload
//! ```
//! Integers are little-endian. Types 1 to 127 go from server to host ([`Request`]), types from 128
//! up from host to server ([`Event`]). The host sends the first frame, [`Event::Hello`].
//!
//! Frozen: the fields of a type never change. An addition gets a type of its own, announced by a bit in
//! `features`. A frame of an unknown type is skipped. Every request except `Hello` begins with its `seq`
//! and is answered by exactly one frame with the same `seq`, so that even a request unknown to an older
//! host is answered ([`ReplyCode::Unsupported`]).
//!
//! This crate does no I/O: the host's loop and the server's tasks own their sockets.

#[macro_use]
mod macros;
mod error;
mod event;
mod field;
mod frame;
mod limits;
mod numbers;
mod request;
mod sections;

pub use error::{Malformed, TooLarge};
pub use event::{CommandInfo, Event, LogRecord, TerminalInfo};
pub use frame::{Decoder, Frame, put_command_output, put_output};
pub use limits::{MAX_DATA, MAX_FRAME};
pub use numbers::{IfBusy, Outcome, Phase, RecordKind, ReplyCode, Shell, StdinMode, Stream};
pub use request::Request;
pub use sections::{Sections, decode_sections, encode_sections};

/// The protocol version of this build.
pub const VERSION: u16 = 1;

/// The optional parts of the protocol in this build. A bit is assigned once and keeps its meaning.
pub const FEATURES: u64 = features::EXEC
    | features::UPGRADE
    | features::CGROUP
    | features::END_WITH_PROGRAM
    | features::WITHDRAW
    | features::TYPE_SECRET
    | features::PORTS;

/// The bits of `features` in the two `Hello` messages.
pub mod features {
    /// `Exec…`, `State`, `Apply` and `Replace` are understood.
    pub const EXEC: u64 = 1;
    /// `Upgrade` is understood.
    pub const UPGRADE: u64 = 1 << 1;
    /// `TerminalInfo::cgroup` is filled in where there is a cgroup.
    pub const CGROUP: u64 = 1 << 2;
    /// `EndWithProgram` is understood.
    pub const END_WITH_PROGRAM: u64 = 1 << 3;
    /// `ExecWithdraw` is understood.
    pub const WITHDRAW: u64 = 1 << 4;
    /// `TypeSecret` is understood.
    pub const TYPE_SECRET: u64 = 1 << 5;
    /// `Ports` is understood.
    pub const PORTS: u64 = 1 << 6;
}

#[cfg(test)]
mod tests;
