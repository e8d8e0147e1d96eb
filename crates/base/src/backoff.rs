//! Waits between the attempts of an operation, which double up to a maximum.

use std::time::Duration;

/// The waits of one operation. A constant `Backoff` is copied by each operation that begins.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Waits `first` after the first failure.
    #[must_use]
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, failures: 0 }
    }

    /// Counts a failure, and returns the wait after it.
    pub fn next_wait(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.after(self.failures)
    }

    /// Returns the wait after this many failures; at least one is assumed.
    #[must_use]
    pub fn after(&self, failures: u32) -> Duration {
        self.first.saturating_mul(1 << failures.saturating_sub(1).min(31)).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_maximum() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        let waits: Vec<u128> = (0..8).map(|_| backoff.next_wait().as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        let after = [0, 1, 2, u32::MAX].map(|failures| backoff.after(failures).as_millis());
        assert_eq!(after, [50, 50, 100, 2000]);
    }
}
