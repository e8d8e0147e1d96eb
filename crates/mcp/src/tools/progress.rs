//! What a client learns while a call waits, and its wish to wait no longer.

use std::{pin::pin, time::Duration};

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::tool::{ToolCall, ToolError};

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Length of the message of a notification.
const MAX_MESSAGE_CHARS: usize = 200;

/// The progress of one call: the seconds since its start, and a message.
pub(super) struct CallProgress {
    token: Option<ProgressToken>,
    started: Instant,
    ticks: Interval,
    message: String,
}

impl CallProgress {
    pub(super) fn new(call: &ToolCall) -> CallProgress {
        let started = Instant::now();
        let mut ticks = tokio::time::interval_at(started + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let token = call.context.meta.get_progress_token();
        CallProgress { token, started, ticks, message: String::new() }
    }

    /// Whether the client asked for notifications.
    pub(super) fn is_wanted(&self) -> bool {
        self.token.is_some()
    }

    /// Returns when the next notification is due; never if the client wants none.
    pub(super) async fn due(&mut self) {
        match self.token {
            Some(_) => drop(self.ticks.tick().await),
            None => std::future::pending().await,
        }
    }

    /// Sets the message of the notifications that follow.
    pub(super) fn set_message(&mut self, text: &str) {
        self.message = text.chars().take(MAX_MESSAGE_CHARS).collect();
    }

    pub(super) async fn send(&self, call: &ToolCall) {
        let Some(token) = &self.token else { return };
        let seconds = self.started.elapsed().as_secs_f64();
        let mut note = ProgressNotificationParam::new(token.clone(), seconds);
        if !self.message.is_empty() {
            note = note.with_message(self.message.clone());
        }
        // A client that has disconnected is noticed by its cancellation.
        let _ = call.context.peer.notify_progress(note).await;
    }

    /// Waits for a result and reports progress meanwhile. Returns `None` if the client cancels the call.
    pub(super) async fn wait<T>(
        &mut self,
        call: &ToolCall,
        result: impl Future<Output = T>,
    ) -> Option<T> {
        let mut result = pin!(result);
        loop {
            tokio::select! {
                result = &mut result => return Some(result),
                () = call.context.ct.cancelled() => return None,
                () = self.due() => self.send(call).await,
            }
        }
    }
}

/// The result of a call that its client cancelled, which no client reads.
pub(super) fn cancelled() -> ToolError {
    ToolError::Failed("the call was cancelled".into())
}
