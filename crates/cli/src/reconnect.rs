//! Waiting for a server that is restarted, or that asks for a later request.

use std::time::Duration;

use tokio::time::Instant;

use super::client::{ApiClient, ApiError, NoServer, NoTls};

/// How long to wait for a server that is unreachable or asks for a retry.
const UNAVAILABLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The delay between two attempts to reach the server.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(200);
/// The time without a result after which a notice names what we wait for.
pub(super) const NOTICE_AFTER: Duration = Duration::from_secs(1);

/// What is known about the connection to a server.
#[derive(Default)]
pub(super) struct Reconnect {
    /// Whether the server was reached at least once.
    reached: bool,
    /// When the first of the failed attempts was made.
    failing_since: Option<Instant>,
    /// The last notice that was printed.
    printed: Option<String>,
}

impl Reconnect {
    /// Takes note that the server has answered.
    pub(super) fn connected(&mut self) {
        *self = Reconnect { reached: true, ..Reconnect::default() };
    }

    /// Waits before the next attempt; returns the error if another attempt would not help.
    pub(super) async fn pause(
        &mut self,
        client: &ApiClient,
        error: anyhow::Error,
    ) -> anyhow::Result<()> {
        self.reached |= !error.is::<NoServer>();
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        let pause = match self.retry_in(&error) {
            Some(pause) if Instant::now() + pause <= since + UNAVAILABLE_TIMEOUT => pause,
            Some(_) | None => return Err(error),
        };
        let reason = match error.downcast_ref::<ApiError>() {
            Some(refusal) => format!("waiting; the server asks to try again: {}", refusal.detail),
            None => format!("waiting for {}: {error:#}", client.authority()),
        };
        // In steps, so that the notice is printed while we wait.
        let next = Instant::now() + pause;
        while Instant::now() < next {
            if since.elapsed() >= NOTICE_AFTER && self.printed.as_deref() != Some(&reason) {
                eprintln!("stead: {reason}");
                self.printed = Some(reason.clone());
            }
            tokio::time::sleep_until(next.min(Instant::now() + RETRY_DELAY)).await;
        }
        Ok(())
    }

    /// Returns the delay before the request is repeated; `None` if that would not help.
    fn retry_in(&self, error: &anyhow::Error) -> Option<Duration> {
        if let Some(refusal) = error.downcast_ref::<ApiError>() {
            let unavailable = refusal.status == http::StatusCode::SERVICE_UNAVAILABLE;
            return refusal.retry_after.filter(|_| unavailable).map(|pause| pause.max(RETRY_DELAY));
        }
        // A server that never answered is not restarting, and a wrong certificate stays wrong.
        let hopeless = (error.is::<NoServer>() && !self.reached) || error.is::<NoTls>();
        (!hopeless).then_some(RETRY_DELAY)
    }
}
