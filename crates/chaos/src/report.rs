//! The violations that a run found, and its counters.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

/// The maximum number of printed violations; the rest is only counted.
const MAX_PRINTED: usize = 40;

/// A broken guarantee of the server.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The kind of guarantee.
    pub kind: &'static str,
    /// The affected resource.
    pub key: String,
    /// The observation that shows it.
    pub detail: String,
}

/// Collects counts and violations of all clients.
#[derive(Debug, Default)]
pub struct Report {
    clock: AtomicU64,
    counts: Mutex<BTreeMap<String, u64>>,
    violations: Mutex<Vec<Violation>>,
}

impl Report {
    /// Returns the next instant of the logical clock, which starts at 1.
    pub fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Increments a counter by name.
    pub fn count(&self, what: impl Into<String>) {
        *self.counts.lock().entry(what.into()).or_default() += 1;
    }

    /// Returns the value of a counter.
    #[must_use]
    pub fn counted(&self, what: &str) -> u64 {
        self.counts.lock().get(what).copied().unwrap_or(0)
    }

    /// Records a violation and prints it at once.
    pub fn violation(&self, kind: &'static str, key: impl Into<String>, detail: impl Into<String>) {
        let violation = Violation { kind, key: key.into(), detail: detail.into() };
        let mut violations = self.violations.lock();
        if violations.len() < MAX_PRINTED {
            println!("VIOLATION {kind} of {}: {}", violation.key, violation.detail);
        }
        violations.push(violation);
    }

    /// Returns all violations so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.violations.lock().clone()
    }

    /// Prints the counts.
    pub fn print_counts(&self) {
        for (what, count) in self.counts.lock().iter() {
            println!("  {count:>8}  {what}");
        }
    }
}
