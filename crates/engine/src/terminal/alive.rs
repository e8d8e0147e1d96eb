//! A terminal's connection to its host.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::link::HostLink;
use super::scribe::Order;
use base::outbound::bounded;
use model::TerminalId;

/// How long the scribe may take to record what it has received.
const RECORD_TIMEOUT: Duration = Duration::from_secs(30);

/// The connection of a live terminal.
pub(super) struct Alive {
    pub(super) link: HostLink,
    pub(super) orders: mpsc::Sender<Order>,
    pub(super) scribe: JoinHandle<()>,
}

impl Alive {
    /// Returns whether the terminal is on the host of this connection.
    pub(super) fn is_on(&self, link: &HostLink) -> bool {
        self.link.boot_id() == link.boot_id() && !self.link.closed().is_cancelled()
    }

    /// Ends the connection of a terminal, and waits until its scribe has recorded everything it received: the
    /// next scribe continues from the version that is stored then.
    pub(super) async fn end(self, id: &TerminalId) {
        self.link.unlisten(id.as_str());
        if bounded("terminal.record", RECORD_TIMEOUT, self.scribe).await.is_err() {
            tracing::warn!(terminal = %id, "the end of a shell is not recorded yet");
        }
    }
}
