//! Messages that several calls share: the selector of a process, and the size of its PTY.

use std::sync::Arc;

use serde::Deserialize;

use crate::e2b::connect::{ConnectCode, ConnectError};
use adapter::{Adapter, process::SandboxProcess};
use store::SandboxRecord;

/// Selects a process by its id or its tag.
#[derive(Debug, Clone, Deserialize)]
pub(in crate::e2b) struct Selector {
    pub(super) pid: Option<u32>,
    pub(super) tag: Option<String>,
}

impl Selector {
    pub(super) async fn running(
        &self,
        app: &Adapter,
        sandbox: &SandboxRecord,
    ) -> Result<Arc<SandboxProcess>, ConnectError> {
        let processes = app.processes(sandbox).await?;
        processes.running(self.pid, self.tag.as_deref()).ok_or_else(|| self.missing())
    }

    pub(super) fn missing(&self) -> ConnectError {
        let message = match (&self.pid, &self.tag) {
            (Some(pid), _) => format!("process with pid {pid} not found"),
            (None, Some(tag)) => format!("process with tag {tag} not found"),
            (None, None) => "the request names no process".to_owned(),
        };
        ConnectError::new(ConnectCode::NotFound, message)
    }
}

/// A request with only a process.
#[derive(Debug, Deserialize)]
pub(in crate::e2b) struct ProcessSelectorRequest {
    pub(super) process: Selector,
}

#[derive(Debug, Deserialize)]
pub(super) struct PtyOptions {
    size: Option<PtyDimensions>,
}

#[derive(Debug, Deserialize)]
struct PtyDimensions {
    #[serde(default)]
    cols: u32,
    #[serde(default)]
    rows: u32,
}

impl PtyOptions {
    pub(super) fn size(&self) -> (u16, u16) {
        let checked = |given: u32, default: u16| match u16::try_from(given) {
            Ok(0) | Err(_) => default,
            Ok(given) => given,
        };
        match &self.size {
            Some(size) => (checked(size.cols, 80), checked(size.rows, 24)),
            None => (80, 24),
        }
    }
}
