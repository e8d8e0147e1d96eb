//! A terminal's connection to its host.

use tokio::sync::mpsc;

use super::link::Link;
use super::scribe::Order;

/// A terminal's place on a host.
pub(super) struct Alive {
    pub(super) link: Link,
    pub(super) orders: mpsc::Sender<Order>,
}

impl Alive {
    /// Whether it is on the host at the other end of this connection.
    pub(super) fn is_on(&self, link: &Link) -> bool {
        self.link.boot_id() == link.boot_id() && !self.link.closed().is_cancelled()
    }
}
