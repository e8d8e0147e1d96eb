//! The programs of sandboxes by process id.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::OnceCell;

use super::program::{ProcessKind, SandboxProcess};
use model::{Terminal, ThreadId};

/// The limit of ended programs that a client can still query.
const MAX_ENDED: usize = 64;
/// The limit of ended PTYs that are kept.
const MAX_ENDED_TERMINALS: usize = 8;

/// The programs of each sandbox that was used since the server started.
#[derive(Default)]
pub struct ProcessTables(Mutex<HashMap<ThreadId, Arc<SandboxProcesses>>>);

impl ProcessTables {
    pub(super) fn of(&self, id: &ThreadId) -> Arc<SandboxProcesses> {
        self.0.lock().entry(id.clone()).or_default().clone()
    }

    pub fn forget(&self, id: &ThreadId) {
        self.0.lock().remove(id);
    }
}

/// The programs of one sandbox.
#[derive(Default)]
pub struct SandboxProcesses {
    pub(super) loaded: OnceCell<()>,
    inner: Mutex<ProcessTable>,
}

#[derive(Default)]
pub(super) struct ProcessTable {
    pub(super) running: HashMap<u32, Arc<SandboxProcess>>,
    pub(super) ended: Vec<Arc<SandboxProcess>>,
    /// Workers that run no program.
    pub(super) idle: Vec<Terminal>,
}

impl SandboxProcesses {
    pub(super) fn inner(&self) -> MutexGuard<'_, ProcessTable> {
        self.inner.lock()
    }

    /// The running program with this process id or tag.
    pub fn running(&self, pid: Option<u32>, tag: Option<&str>) -> Option<Arc<SandboxProcess>> {
        let inner = self.inner();
        match (pid, tag) {
            (Some(pid), _) => inner.running.get(&pid).cloned(),
            (None, Some(tag)) => {
                inner.running.values().find(|it| it.tag.as_deref() == Some(tag)).cloned()
            }
            (None, None) => None,
        }
    }

    /// The running program with this process id or tag, or else the last one that ended.
    pub fn find(&self, pid: Option<u32>, tag: Option<&str>) -> Option<Arc<SandboxProcess>> {
        self.running(pid, tag).or_else(|| {
            let inner = self.inner();
            let is = |it: &&Arc<SandboxProcess>| match (pid, tag) {
                (Some(pid), _) => it.pid == pid,
                (None, tag) => tag.is_some() && it.tag.as_deref() == tag,
            };
            inner.ended.iter().rev().find(is).cloned()
        })
    }

    /// The running programs, by process id.
    pub fn all(&self) -> Vec<Arc<SandboxProcess>> {
        let mut all: Vec<_> = self.inner().running.values().cloned().collect();
        all.sort_by_key(|process| process.pid);
        all
    }

    pub(super) fn begin(&self, process: Arc<SandboxProcess>) {
        self.inner().running.insert(process.pid, process);
    }

    /// Records an end and frees the worker. Returns the terminals of ended programs beyond the limit.
    pub(super) fn end(&self, process: &Arc<SandboxProcess>) -> Vec<Terminal> {
        let mut inner = self.inner();
        if inner.running.get(&process.pid).is_some_and(|it| Arc::ptr_eq(it, process)) {
            inner.running.remove(&process.pid);
        }
        if let ProcessKind::Command { .. } = process.kind {
            inner.idle.push(process.terminal.clone());
        }
        inner.ended.push(process.clone());
        while inner.ended.len() > MAX_ENDED {
            inner.ended.remove(0);
        }
        let ptys = inner
            .ended
            .iter()
            .filter(|it| matches!(it.kind, ProcessKind::Pty))
            .cloned()
            .collect::<Vec<_>>();
        let surplus = ptys.len().saturating_sub(MAX_ENDED_TERMINALS);
        let removed = &ptys[..surplus];
        inner.ended.retain(|it| !removed.iter().any(|other| Arc::ptr_eq(it, other)));
        removed.iter().map(|it| it.terminal.clone()).collect()
    }
}
