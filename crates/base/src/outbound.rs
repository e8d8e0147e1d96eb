//! Calls that leave this process: one place gives each of them a deadline, a name and a count.
//!
//! A host, a vendor, a container engine or a helper program may stop answering at any moment. Nothing
//! here waits for one without a limit: [`bounded`] is the only way out, and `tests/it/tidy.rs` fails on a
//! call that goes around it.

use std::time::{Duration, Instant};

use crate::metrics::OUTBOUND;

/// A call whose answer did not come in time. Whether it was carried out is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call} did not answer within {limit:?}")]
pub struct TimedOut {
    /// The name of the call, as in the metric.
    pub call: &'static str,
    /// How long it was waited for.
    pub limit: Duration,
}

/// Waits for a call, but no longer than `limit`. The name is what logs and `stead_outbound_…` show.
pub async fn bounded<T>(
    call: &'static str,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Result<T, TimedOut> {
    let began = Instant::now();
    let done = tokio::time::timeout(limit, work).await;
    OUTBOUND.observe(call, began.elapsed(), done.is_err());
    done.map_err(|_| {
        tracing::warn!(call, ?limit, "an outbound call timed out");
        TimedOut { call, limit }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_that_never_answers_ends_at_its_limit() {
        let limit = Duration::from_millis(10);
        let ended = bounded("test.silent", limit, std::future::pending::<()>()).await;
        assert_eq!(ended, Err(TimedOut { call: "test.silent", limit }));
        assert_eq!(bounded("test.quick", Duration::MAX, async { 7 }).await, Ok(7));
        let text = crate::metrics::ServerMetrics::new().text().unwrap();
        assert!(text.contains("stead_outbound_timeouts_total{call=\"test.silent\"} 1"), "{text}");
    }
}
