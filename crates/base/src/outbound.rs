//! Outbound calls: each gets a deadline, a name and a metric.
//!
//! A host, a vendor, a container engine or a helper program may stop answering at any moment. No call
//! waits without a limit: all of them go through [`bounded`], and `tests/tidy` fails on a call that
//! bypasses it.

pub mod program;
pub mod tls;

use std::time::{Duration, Instant};

use crate::metrics::OUTBOUND;

/// A call that was not answered in time. It is unknown whether it was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call} did not answer within {limit:?}")]
pub struct TimedOut {
    /// The label of the call in the metrics.
    pub call: &'static str,
    pub limit: Duration,
}

/// Waits for a call, but no longer than `limit`. The name appears in logs and in the `stead_outbound_…` metrics.
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
