//! How often, and how soon, a failed call to a provider is retried. Pure.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use base::backoff::Backoff;

/// The limits of retrying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How often one call is attempted before the caller gets its error.
    pub attempts: u32,
    /// The wait after the first failure. It doubles with each further failure.
    pub initial_backoff: Duration,
    pub max_backoff: Duration,
    /// How many instances of one lease may be created within `window`.
    pub max_instances: usize,
    pub window: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 5,
            initial_backoff: Duration::from_millis(50),
            max_backoff: Duration::from_secs(2),
            max_instances: 10,
            window: Duration::from_secs(600),
        }
    }
}

impl RetryPolicy {
    /// Returns the wait after this many failures, or the provider's `retry_after` if that is longer. A
    /// provider cannot ask for more than five times `max_backoff`.
    pub(super) fn backoff(&self, failures: u32, retry_after: Option<Duration>) -> Duration {
        let own = Backoff::new(self.initial_backoff, self.max_backoff).after(failures);
        retry_after.map_or(own, |requested| requested.clamp(own, self.max_backoff * 5))
    }
}

/// When the instances of one lease were created, within the window of the policy.
#[derive(Debug, Default)]
pub(super) struct CreationBudget {
    created: VecDeque<Instant>,
}

impl CreationBudget {
    /// Counts one creation, or returns how long to wait until one is allowed.
    pub(super) fn take(&mut self, policy: &RetryPolicy, now: Instant) -> Result<(), Duration> {
        let expired = |created: &Instant| now.duration_since(*created) >= policy.window;
        while self.created.front().is_some_and(expired) {
            self.created.pop_front();
        }
        if self.created.len() >= policy.max_instances
            && let Some(oldest) = self.created.front()
        {
            return Err(policy.window.saturating_sub(now.duration_since(*oldest)));
        }
        self.created.push_back(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_maximum() {
        let policy = RetryPolicy::default();
        let waits: Vec<u128> = (1..8).map(|n| policy.backoff(n, None).as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1600, 2000]);
        assert_eq!(policy.backoff(1, Some(Duration::from_secs(3))), Duration::from_secs(3));
        assert_eq!(policy.backoff(1, Some(Duration::from_secs(300))), Duration::from_secs(10));
        assert_eq!(policy.backoff(1, Some(Duration::ZERO)), Duration::from_millis(50));
        assert_eq!(policy.backoff(u32::MAX, None), Duration::from_secs(2));
    }

    #[test]
    fn a_budget_fills_up_again() {
        let window = Duration::from_secs(10);
        let policy = RetryPolicy { max_instances: 2, window, ..RetryPolicy::default() };
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut budget = CreationBudget::default();
        assert_eq!(budget.take(&policy, at(0)), Ok(()));
        assert_eq!(budget.take(&policy, at(4)), Ok(()));
        assert_eq!(budget.take(&policy, at(5)), Err(Duration::from_secs(5)));
        assert_eq!(budget.take(&policy, at(10)), Ok(()));
        assert_eq!(budget.take(&policy, at(11)), Err(Duration::from_secs(3)));
    }
}
