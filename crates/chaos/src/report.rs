//! What a run found, and how often it did what.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Violations that are printed at most; the rest is counted.
const MAX_PRINTED: usize = 40;

/// Something that must not happen.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The promise that was broken, in a word.
    pub kind: &'static str,
    /// What it was broken for.
    pub key: String,
    /// What was seen.
    pub detail: String,
}

/// Collects counts and violations of all clients.
#[derive(Debug, Default)]
pub struct Report {
    clock: AtomicU64,
    counts: Mutex<BTreeMap<String, u64>>,
    violations: Mutex<Vec<Violation>>,
}

/// Locks a mutex whatever happened to a thread that held it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Report {
    /// Returns the next instant of the logical clock, which starts at 1.
    pub fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Counts something.
    pub fn count(&self, what: impl Into<String>) {
        *lock(&self.counts).entry(what.into()).or_default() += 1;
    }

    /// Records a violation and prints it at once.
    pub fn violation(&self, kind: &'static str, key: impl Into<String>, detail: impl Into<String>) {
        let violation = Violation { kind, key: key.into(), detail: detail.into() };
        let mut violations = lock(&self.violations);
        if violations.len() < MAX_PRINTED {
            println!("VIOLATION {kind} of {}: {}", violation.key, violation.detail);
        }
        violations.push(violation);
    }

    /// Returns all violations so far.
    pub fn violations(&self) -> Vec<Violation> {
        lock(&self.violations).clone()
    }

    /// Prints the counts.
    pub fn print_counts(&self) {
        for (what, count) in lock(&self.counts).iter() {
            println!("  {count:>8}  {what}");
        }
    }
}
