//! The log on standard error. Never contains environment values, tokens or input.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use config::{LogFormat, LogLevel};

/// The crates that the configured level applies to; a test compares them with the workspace.
const OUR_CRATES: [&str; 15] = [
    "adapter", "api", "base", "cloud", "compat", "config", "engine", "files", "images", "machine",
    "mcp", "model", "provider", "server", "store",
];

/// Starts logging for the whole process.
pub fn start(format: LogFormat, level: LogLevel) {
    let level = match level {
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
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("panic without a message");
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        let trace = std::backtrace::Backtrace::capture();
        tracing::error!(location, %trace, "panic: {message}");
    }));
}
