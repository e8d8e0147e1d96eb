//! Follows spans from their start to their end, and puts those that ended into the queue.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use tokio::sync::mpsc;
use tracing::{
    Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

use super::context::SpanContext;

/// A span that ended.
#[derive(Debug)]
pub struct ClosedSpan {
    pub context: SpanContext,
    pub fields: SpanFields,
    pub started: SystemTime,
    pub ended: SystemTime,
}

/// The name, kind and attributes of a span.
#[derive(Debug)]
pub struct SpanFields {
    pub name: String,
    pub kind: SpanKind,
    pub attributes: Vec<(&'static str, AttributeValue)>,
    traceparent: Option<String>,
}

/// The kind of a span, with its number in OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    Text(String),
    Integer(i64),
    Number(f64),
    Flag(bool),
}

/// The spans that wait to be exported.
pub struct SpanQueue {
    pub spans: mpsc::Receiver<ClosedSpan>,
    /// How many spans found the queue full since the last report.
    pub dropped: Arc<AtomicU64>,
}

pub struct TraceLayer {
    spans: mpsc::Sender<ClosedSpan>,
    dropped: Arc<AtomicU64>,
}

struct OpenSpan {
    context: SpanContext,
    fields: SpanFields,
    started: SystemTime,
    /// When its result was recorded. A span closes later than that if spans inside it continue.
    ended: Option<SystemTime>,
}

impl TraceLayer {
    pub fn new(spans: mpsc::Sender<ClosedSpan>, dropped: Arc<AtomicU64>) -> TraceLayer {
        TraceLayer { spans, dropped }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TraceLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, subscriber: Context<'_, S>) {
        let Some(span) = subscriber.span(id) else { return };
        let name = attributes.metadata().name().to_owned();
        let mut fields = SpanFields {
            name,
            kind: SpanKind::Internal,
            attributes: Vec::new(),
            traceparent: None,
        };
        attributes.record(&mut fields);
        let inside = span.parent().and_then(|parent| {
            parent.extensions().get::<OpenSpan>().map(|parent| parent.context.child())
        });
        let context = inside.unwrap_or_else(|| {
            let given = fields.traceparent.as_deref().and_then(SpanContext::parse);
            given.map_or_else(SpanContext::root, |client| client.child())
        });
        let open = OpenSpan { context, fields, started: SystemTime::now(), ended: None };
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, subscriber: Context<'_, S>) {
        let Some(span) = subscriber.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<OpenSpan>() {
            values.record(&mut open.fields);
            open.ended = Some(SystemTime::now());
        }
    }

    fn on_close(&self, id: Id, subscriber: Context<'_, S>) {
        let Some(span) = subscriber.span(&id) else { return };
        let Some(OpenSpan { context, fields, started, ended }) = span.extensions_mut().remove()
        else {
            return;
        };
        if !context.sampled {
            return;
        }
        let ended = ended.unwrap_or_else(SystemTime::now).max(started);
        if self.spans.try_send(ClosedSpan { context, fields, started, ended }).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl SpanFields {
    fn add(&mut self, field: &Field, value: AttributeValue) {
        match (field.name(), value) {
            ("otel.name", AttributeValue::Text(name)) => self.name = name,
            ("otel.kind", AttributeValue::Text(kind)) => {
                self.kind = match kind.as_str() {
                    "server" => SpanKind::Server,
                    "client" => SpanKind::Client,
                    _ => SpanKind::Internal,
                }
            }
            ("traceparent", AttributeValue::Text(header)) => self.traceparent = Some(header),
            (name, value) => self.attributes.push((name, value)),
        }
    }
}

impl Visit for SpanFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, AttributeValue::Text(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, AttributeValue::Text(value.to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, AttributeValue::Integer(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, AttributeValue::Integer(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, AttributeValue::Number(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, AttributeValue::Flag(value));
    }
}
