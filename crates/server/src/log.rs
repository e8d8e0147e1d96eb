//! The log on standard error. Never contains environment values, tokens or input.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use super::telemetry::{self, SpanQueue};
use config::{LogFormat, LogLevel, Settings};

/// The crates that the configured level applies to; a test compares them with the workspace.
const OUR_CRATES: [&str; 16] = [
    "adapter", "api", "base", "cgroup", "cloud", "compat", "config", "engine", "files", "images",
    "machine", "mcp", "model", "provider", "server", "store",
];

/// Starts logging for the whole process.
///
/// Spans go to the returned queue if the settings name a receiver of traces.
pub fn start(settings: &Settings) -> Option<SpanQueue> {
    let level = match settings.log_level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // Libraries log whole requests with their headers at lower levels.
    let filter = Targets::new()
        .with_default(LevelFilter::WARN)
        .with_targets(OUR_CRATES.map(|name| (name, level)));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let lines = match settings.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    let (layer, queue) =
        settings.telemetry.otlp_endpoint.as_ref().map(|_| telemetry::layer()).unzip();
    let spans = layer.map(|layer| layer.with_filter(telemetry::filter()));
    tracing_subscriber::registry().with(lines.with_filter(filter)).with(spans).init();
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("panic without a message");
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        let trace = std::backtrace::Backtrace::capture();
        tracing::error!(location, %trace, "panic: {message}");
    }));
    queue
}
