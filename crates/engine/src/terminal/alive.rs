//! A terminal's connection to its host.

use tokio::sync::mpsc;

use super::link::HostLink;
use super::scribe::Order;

/// The connection of a live terminal.
pub(super) struct Alive {
    pub(super) link: HostLink,
    pub(super) orders: mpsc::Sender<Order>,
}

impl Alive {
    /// Returns whether the terminal is on the host of this connection.
    pub(super) fn is_on(&self, link: &HostLink) -> bool {
        self.link.boot_id() == link.boot_id() && !self.link.closed().is_cancelled()
    }
}
