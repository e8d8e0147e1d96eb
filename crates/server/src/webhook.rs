//! Signed notifications of open hand-offs to the webhook of the settings.
//!
//! ```text
//!   Stead-Timestamp: 1700000000            seconds since 1970
//!   Stead-Signature: v1=<hexadecimal HMAC-SHA-256 of "<timestamp>.<body>" by notify.secret>
//! ```

use std::sync::Arc;

use anyhow::Context;
use serde_json::json;

use api::key::hmac_sha256;
use base::clock::Clock;
use cloud::WebhookClient;
use config::{Secret, Settings};
use engine::handoff::{HandoffNotifier, NotifyError, Notifying};
use model::Handoff;

struct Webhook {
    client: WebhookClient,
    secret: Secret,
    clock: Clock,
}

/// Returns the notifier of the settings, if there is a webhook.
pub(super) fn notifier(
    settings: &Settings,
    clock: &Clock,
) -> anyhow::Result<Option<Arc<dyn HandoffNotifier>>> {
    let Some(url) = settings.notify.webhook.clone() else { return Ok(None) };
    let client = WebhookClient::new(url).context("cannot set up the client of notify.webhook")?;
    let secret = settings.notify.secret.clone();
    Ok(Some(Arc::new(Webhook { client, secret, clock: clock.clone() })))
}

impl HandoffNotifier for Webhook {
    fn notify<'a>(&'a self, handoff: &'a Handoff) -> Notifying<'a> {
        Box::pin(async move {
            let (timestamp, body) = (self.clock.wall().as_second(), body(handoff));
            let signature = signature(self.secret.reveal(), timestamp, &body);
            let timestamp = timestamp.to_string();
            let headers =
                [("stead-timestamp", timestamp.as_str()), ("stead-signature", signature.as_str())];
            let sent = self.client.post(&headers, body).await;
            sent.map_err(|error| NotifyError { reason: error.to_string() })
        })
    }
}

fn body(handoff: &Handoff) -> String {
    json!({
        "type": "handoff_opened",
        "handoff_id": handoff.handoff_id,
        "thread_id": handoff.thread_id,
        "terminal_id": handoff.terminal_id,
        "kind": handoff.kind,
        "reason": handoff.reason,
        "options": handoff.options,
        "created_at": handoff.created.at,
        "expires_at": handoff.expires_at(),
    })
    .to_string()
}

fn signature(secret: &str, timestamp: i64, body: &str) -> String {
    let code = hmac_sha256(secret.as_bytes(), format!("{timestamp}.{body}").as_bytes());
    let digits: String = code.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("v1={digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_covers_timestamp_and_body() {
        // printf '1700000000.{}' | openssl dgst -sha256 -hmac key
        let expected = "v1=9d713ed406bb7076d4123f0dc2c39d2df5c654ed4b0cd56b52c8b4c940bd63ae";
        assert_eq!(signature("key", 1_700_000_000, "{}"), expected);
        assert_ne!(signature("key", 1_700_000_001, "{}"), expected);
        assert_ne!(signature("key", 1_700_000_000, "{ }"), expected);
    }
}
