//! Traces for an OpenTelemetry receiver: OTLP over HTTP, encoded as JSON. Off unless `telemetry.otlp_endpoint` is set.
//!
//! ```text
//!   span closes ─ layer ─ try_send ─▶ bounded queue ─▶ exporter, one task ─▶ POST {endpoint}/v1/traces
//! ```
//!
//! Only spans with the target `trace` are exported. A request never waits for this: a span that finds the queue full is
//! dropped and counted, and a batch that the receiver does not accept is not sent again.

mod context;
mod export;
mod layer;

use std::{io, net::SocketAddr, sync::Arc, sync::atomic::AtomicU64};

use tokio::sync::mpsc;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

use cloud::WebhookClient;
use export::Exporter;
use layer::TraceLayer;

pub use layer::SpanQueue;

/// The length of the queue.
const QUEUE_LENGTH: usize = 4096;
/// The target of the spans that are exported.
const TARGET: &str = "trace";

/// Returns the layer that sees spans, and the queue to which it adds them.
pub(super) fn layer() -> (TraceLayer, SpanQueue) {
    let (sender, spans) = mpsc::channel(QUEUE_LENGTH);
    let dropped = Arc::<AtomicU64>::default();
    (TraceLayer::new(sender, dropped.clone()), SpanQueue { spans, dropped })
}

pub(super) fn filter() -> Targets {
    Targets::new().with_target(TARGET, LevelFilter::DEBUG)
}

/// Returns the exporter of a queue. `url` is that of the receiver, without the path of traces.
pub(super) fn exporter(queue: SpanQueue, url: &str, address: &SocketAddr) -> io::Result<Exporter> {
    let client = WebhookClient::of_traces(format!("{}/v1/traces", url.trim_end_matches('/')))?;
    Ok(Exporter::new(queue, client, address))
}
