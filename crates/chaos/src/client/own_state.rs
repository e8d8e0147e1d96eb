//! The state of a client's own thread, as the client knows it.

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::Ledger;

/// The acknowledged state of the client's own thread.
#[derive(Debug, Default)]
pub(super) struct OwnState {
    /// The value of the variable at acknowledged versions.
    pub(super) versions: BTreeMap<u64, u64>,
    /// The answers that acknowledged them, for a report.
    pub(super) origins: BTreeMap<u64, String>,
    /// Values of changes with an unknown outcome: they may appear at any time.
    pub(super) unsettled: BTreeSet<u64>,
    pub(super) typed: Ledger,
    pub(super) messages: Ledger,
    /// A terminal whose program appends typed lines to a file.
    pub(super) pty: Option<String>,
    pub(super) streams: Vec<OutputStream>,
    pub(super) temporary: u64,
    /// Share links that were created or revoked with an acknowledgement, by the status that they must have.
    pub(super) shares: BTreeMap<String, &'static str>,
}

/// A command with output that is known in advance.
#[derive(Debug, Clone)]
pub(super) struct OutputStream {
    pub(super) command: String,
    pub(super) expected: Vec<u8>,
    /// Bytes that were received so far; they must not be lost.
    pub(super) received: usize,
    /// The offset at which to continue. It is larger if a full disk kept no more bytes.
    pub(super) next: usize,
    pub(super) finished: bool,
}
