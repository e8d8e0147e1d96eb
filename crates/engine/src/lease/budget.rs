//! How often, and how soon, something that failed is tried again. Pure.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// The pace of trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// How often one act is tried before whoever asked is told.
    pub tries: u32,
    /// The wait after the first failure; it doubles with each.
    pub first_wait: Duration,
    /// The longest wait.
    pub longest_wait: Duration,
    /// How many instances of one lease may be made within `window`.
    pub instances: usize,
    /// How long an instance counts.
    pub window: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            tries: 5,
            first_wait: Duration::from_millis(50),
            longest_wait: Duration::from_secs(2),
            instances: 10,
            window: Duration::from_secs(600),
        }
    }
}

impl Pace {
    /// The wait after this many failures, or what the other side asked for if that is longer (but no
    /// more than five times our longest).
    pub(super) fn wait(&self, failures: u32, asked: Option<Duration>) -> Duration {
        let doubled = self.first_wait.saturating_mul(1 << failures.saturating_sub(1).min(16));
        let own = doubled.min(self.longest_wait);
        asked.map_or(own, |asked| asked.clamp(own, self.longest_wait * 5))
    }
}

/// When instances of one lease were made lately.
#[derive(Debug, Default)]
pub(super) struct Budget {
    made: VecDeque<Instant>,
}

impl Budget {
    /// Takes one from the budget, or says when there will be one again.
    pub(super) fn take(&mut self, pace: &Pace, now: Instant) -> Result<(), Duration> {
        while self.made.front().is_some_and(|made| now.duration_since(*made) >= pace.window) {
            self.made.pop_front();
        }
        if self.made.len() >= pace.instances
            && let Some(oldest) = self.made.front()
        {
            return Err(pace.window.saturating_sub(now.duration_since(*oldest)));
        }
        self.made.push_back(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let pace = Pace::default();
        let waits: Vec<u128> = (1..8).map(|n| pace.wait(n, None).as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1600, 2000]);
        assert_eq!(pace.wait(1, Some(Duration::from_secs(3))), Duration::from_secs(3));
        assert_eq!(pace.wait(1, Some(Duration::from_secs(300))), Duration::from_secs(10));
        assert_eq!(pace.wait(1, Some(Duration::ZERO)), Duration::from_millis(50));
        assert_eq!(pace.wait(u32::MAX, None), Duration::from_secs(2));
    }

    #[test]
    fn a_budget_fills_up_again() {
        let pace = Pace { instances: 2, window: Duration::from_secs(10), ..Pace::default() };
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut budget = Budget::default();
        assert_eq!(budget.take(&pace, at(0)), Ok(()));
        assert_eq!(budget.take(&pace, at(4)), Ok(()));
        assert_eq!(budget.take(&pace, at(5)), Err(Duration::from_secs(5)));
        assert_eq!(budget.take(&pace, at(10)), Ok(()));
        assert_eq!(budget.take(&pace, at(11)), Err(Duration::from_secs(3)));
    }
}
