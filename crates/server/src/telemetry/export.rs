//! Sends spans to the receiver, in batches.

use std::{
    net::SocketAddr,
    sync::atomic::Ordering,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::context::hex;
use super::layer::{AttributeValue, ClosedSpan, SpanQueue};
use cloud::WebhookClient;

/// Most spans of one request.
const MAX_BATCH: usize = 512;
/// How long a batch waits for further spans.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);
/// How long shutdown waits for the last batch.
const LAST_BATCH_TIMEOUT: Duration = Duration::from_secs(1);
/// The value of an error in `Status.code`.
const STATUS_ERROR: u8 = 2;

/// The task that empties the queue.
pub struct Exporter {
    queue: SpanQueue,
    client: WebhookClient,
    resource: Value,
    /// The last batch was not accepted; only the first one in a row is logged as a warning.
    failing: bool,
}

impl Exporter {
    pub fn new(queue: SpanQueue, client: WebhookClient, address: &SocketAddr) -> Exporter {
        let attributes = [
            ("service.name", AttributeValue::Text("stead".into())),
            ("service.version", AttributeValue::Text(env!("CARGO_PKG_VERSION").into())),
            ("service.instance.id", AttributeValue::Text(address.to_string())),
        ];
        let resource = json!({"attributes": attributes.iter().map(attribute).collect::<Vec<_>>()});
        Exporter { queue, client, resource, failing: false }
    }

    /// Exports until `stop` is cancelled, and then what is left.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                count = self.queue.spans.recv_many(&mut batch, MAX_BATCH) => if count == 0 { return },
            }
            if batch.len() < MAX_BATCH {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(BATCH_INTERVAL) => {}
                }
                self.fill(&mut batch);
            }
            let sent = self.send(&batch);
            tokio::select! {
                () = stop.cancelled() => {}
                () = sent => batch.clear(),
            }
        }
        self.fill(&mut batch);
        if !batch.is_empty() {
            let _ = tokio::time::timeout(LAST_BATCH_TIMEOUT, self.send(&batch)).await;
        }
    }

    fn fill(&mut self, batch: &mut Vec<ClosedSpan>) {
        while batch.len() < MAX_BATCH
            && let Ok(span) = self.queue.spans.try_recv()
        {
            batch.push(span);
        }
    }

    async fn send(&mut self, batch: &[ClosedSpan]) {
        let sent = self.client.post(&[], request(&self.resource, batch).to_string()).await;
        match sent {
            Ok(()) => self.failing = false,
            Err(error) if self.failing => {
                tracing::debug!(%error, spans = batch.len(), "traces were not exported");
            }
            Err(error) => {
                self.failing = true;
                tracing::warn!(%error, spans = batch.len(), "traces were not exported");
            }
        }
        let dropped = self.queue.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(spans = dropped, "the receiver of traces is too slow; dropped spans");
        }
    }
}

/// Returns an `ExportTraceServiceRequest` in the JSON encoding of OTLP.
fn request(resource: &Value, batch: &[ClosedSpan]) -> Value {
    let scope = json!({"name": "stead", "version": env!("CARGO_PKG_VERSION")});
    let spans: Vec<Value> = batch.iter().map(span).collect();
    json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]}]})
}

fn span(span: &ClosedSpan) -> Value {
    let (context, fields) = (&span.context, &span.fields);
    let mut value = json!({
        "traceId": hex(&context.trace),
        "spanId": hex(&context.span),
        "name": fields.name,
        "kind": fields.kind as u8,
        "startTimeUnixNano": nanoseconds(span.started),
        "endTimeUnixNano": nanoseconds(span.ended),
        "attributes": fields.attributes.iter().map(attribute).collect::<Vec<_>>(),
    });
    if let Some(parent) = &context.parent {
        value["parentSpanId"] = hex(parent).into();
    }
    let failed = |(name, value): &(&str, AttributeValue)| {
        *name == "http.response.status_code"
            && matches!(value, AttributeValue::Integer(status) if *status >= 500)
    };
    if fields.attributes.iter().any(failed) {
        value["status"] = json!({"code": STATUS_ERROR});
    }
    value
}

fn attribute((name, value): &(&'static str, AttributeValue)) -> Value {
    let value = match value {
        AttributeValue::Text(text) => json!({"stringValue": text}),
        // 64-bit integers are strings in the JSON encoding of protobuf.
        AttributeValue::Integer(number) => json!({"intValue": number.to_string()}),
        AttributeValue::Number(number) => json!({"doubleValue": number}),
        AttributeValue::Flag(flag) => json!({"boolValue": flag}),
    };
    json!({"key": name, "value": value})
}

fn nanoseconds(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}
