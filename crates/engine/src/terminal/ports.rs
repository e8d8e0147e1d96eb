//! The ports that programs of a lease listen on.

use wire::ReplyCode;

use super::connect::ConnectPurpose;
use super::error::TerminalError;
use super::link::LinkError;
use super::terminals::Terminals;
use crate::lease::IfPaused;
use model::{LeaseId, LeaseState};

impl Terminals {
    /// Returns the TCP ports that programs of a lease listen on, in ascending order. A lease without an instance
    /// has none, and is not started.
    pub async fn ports(&self, lease: &LeaseId) -> Result<Vec<u16>, TerminalError> {
        let row = self.0.store.lease(lease).await?;
        match row.map(|lease| lease.state) {
            Some(LeaseState::Running(_) | LeaseState::Paused(_)) => {}
            None
            | Some(
                LeaseState::Idle
                | LeaseState::Creating { .. }
                | LeaseState::Dead { .. }
                | LeaseState::Destroyed,
            ) => return Ok(Vec::new()),
        }
        let running = self.0.leases.running_if(lease, IfPaused::Refuse).await?;
        let link = self.link(&running, ConnectPurpose::Request).await?;
        match link.ports().await {
            Ok(ports) => Ok(ports),
            Err(LinkError::Refused { code: ReplyCode::Unsupported, .. }) => {
                Err(TerminalError::NoPorts)
            }
            Err(error) => Err(error.into()),
        }
    }
}
