//! Requests to a webhook of the operator, and to the operator's receiver of traces.

use std::io;
use std::time::Duration;

use ::http::Method;
use base::outbound::bounded;

use super::http::{VendorClient, VendorRequest};

/// How long a webhook may take to answer.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// A client of one webhook. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WebhookClient {
    client: VendorClient,
    url: String,
    /// What a request does, for errors.
    doing: &'static str,
    /// The name of the call in metrics and logs.
    call: &'static str,
}

/// A webhook did not accept a request.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WebhookError(String);

impl WebhookClient {
    pub fn new(url: String) -> io::Result<Self> {
        let client = VendorClient::new("the webhook")?;
        Ok(Self { client, url, doing: "notify the webhook", call: "webhook.post" })
    }

    /// A client of the receiver of traces.
    pub fn of_traces(url: String) -> io::Result<Self> {
        let client = VendorClient::new("the receiver of traces")?;
        Ok(Self { client, url, doing: "export traces", call: "telemetry.export" })
    }

    /// Posts a JSON body once; any status but 2xx is an error.
    pub async fn post(
        &self,
        headers: &[(&'static str, &str)],
        body: String,
    ) -> Result<(), WebhookError> {
        let mut request = VendorRequest::new(self.doing, Method::POST, self.url.as_str())
            .body("application/json", body.into())
            .timeout(WEBHOOK_TIMEOUT);
        for &(name, value) in headers {
            request = request.text(name, value);
        }
        let sent = bounded(self.call, WEBHOOK_TIMEOUT, self.client.open_stream(&request));
        match sent.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(fault)) => Err(WebhookError(fault.to_string())),
            Err(late) => Err(WebhookError(late.to_string())),
        }
    }
}
