//! The connection of a terminal to its running shell.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::link::HostLink;
use super::recorder::StateRequest;
use base::outbound::bounded;
use model::TerminalId;

/// How long the recorder may take to record what it has received.
const RECORD_TIMEOUT: Duration = Duration::from_secs(30);

/// The host of a terminal's shell, and the task that records its state.
pub(super) struct ShellConnection {
    pub(super) link: HostLink,
    pub(super) state_requests: mpsc::Sender<StateRequest>,
    pub(super) recorder: JoinHandle<()>,
}

impl ShellConnection {
    /// Returns whether the terminal is on the host of this connection.
    pub(super) fn is_on(&self, link: &HostLink) -> bool {
        self.link.boot_id() == link.boot_id() && !self.link.closed().is_cancelled()
    }

    /// Closes the connection, and waits until its recorder has recorded everything it received: the
    /// next recorder continues from the version that is stored then.
    pub(super) async fn end(self, id: &TerminalId) {
        self.link.unlisten(id.as_str());
        if bounded("terminal.record", RECORD_TIMEOUT, self.recorder).await.is_err() {
            tracing::warn!(terminal = %id, "the end of a shell is not recorded yet");
        }
    }
}
