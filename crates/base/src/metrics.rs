//! The metrics of the server, for `GET /metrics`.
//!
//! Handles are cheap clones of one set; any layer may hold one. Dashboards depend on the names: add
//! metrics, but never rename one.

use std::{
    sync::{Arc, LazyLock, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// The labels of the HTTP request metrics.
#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: u16,
}

/// The label of metrics per provider.
#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ProviderLabel {
    provider: String,
}

/// The label of metrics per kind of outbound call.
#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutboundCall {
    call: &'static str,
}

/// The metrics of outbound calls. Global, since calls are made where no `Metrics` is passed in.
pub static OUTBOUND: LazyLock<Outbound> = LazyLock::new(|| Outbound {
    seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 9))),
    timeouts: Family::default(),
});

/// Durations and timeouts of outbound calls.
#[derive(Debug)]
pub struct Outbound {
    seconds: Family<OutboundCall, Histogram, fn() -> Histogram>,
    timeouts: Family<OutboundCall, Counter>,
}

impl Outbound {
    /// Records the duration of one call and whether it timed out.
    pub fn observe(&self, call: &'static str, time: Duration, timed_out: bool) {
        let label = OutboundCall { call };
        self.seconds.get_or_create(&label).observe(time.as_secs_f64());
        if timed_out {
            self.timeouts.get_or_create(&label).inc();
        }
    }
}

/// All metrics of one server.
#[derive(Debug, Clone)]
pub struct ServerMetrics {
    pub terminals_live: Gauge,
    pub watchers: Gauge,
    pub sessions_opened: Counter,
    pub sessions_closed: Counter,
    pub session_seconds: Histogram,
    pub versions_written: Counter,
    pub instances_created: Counter,
    pub instances_failed: Counter,
    pub snapshot_bytes: Histogram,
    pub snapshot_seconds: Histogram,
    pub reconnects: Counter,
    pub recovery_seconds: Histogram,
    pub recoveries_failed: Counter,
    pub bytes_in: Counter,
    pub bytes_out: Counter,
    pub commands: Counter,
    pub command_seconds: Histogram,
    pub connections: Gauge,
    pub evicted: Counter,
    pub memory_entries: Gauge,
    pub memory_bytes: Gauge,
    pub memory_snapshots: Counter,
    pub memory_snapshot_bytes: Counter,
    pub memory_snapshot_seconds: Counter<f64, AtomicU64>,
    pub memory_snapshot_age: Gauge<f64, AtomicU64>,
    ran: Family<ProviderLabel, Gauge<f64, AtomicU64>>,
    cost: Family<ProviderLabel, Gauge<f64, AtomicU64>>,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Histogram,
    registry: Arc<Registry>,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        ServerMetrics::new()
    }
}

impl ServerMetrics {
    /// Creates an independent set, all zero.
    pub fn new() -> ServerMetrics {
        let seconds = || Histogram::new(exponential_buckets(0.000_25, 2.0, 18));
        let long = || Histogram::new(exponential_buckets(1.0, 3.0, 12));
        let bytes = || Histogram::new(exponential_buckets(256.0, 4.0, 10));
        let mut metrics = ServerMetrics {
            terminals_live: Gauge::default(),
            watchers: Gauge::default(),
            sessions_opened: Counter::default(),
            sessions_closed: Counter::default(),
            session_seconds: long(),
            versions_written: Counter::default(),
            instances_created: Counter::default(),
            instances_failed: Counter::default(),
            snapshot_bytes: bytes(),
            snapshot_seconds: seconds(),
            reconnects: Counter::default(),
            recovery_seconds: seconds(),
            recoveries_failed: Counter::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            commands: Counter::default(),
            command_seconds: seconds(),
            connections: Gauge::default(),
            evicted: Counter::default(),
            memory_entries: Gauge::default(),
            memory_bytes: Gauge::default(),
            memory_snapshots: Counter::default(),
            memory_snapshot_bytes: Counter::default(),
            memory_snapshot_seconds: Counter::default(),
            memory_snapshot_age: Gauge::default(),
            ran: Family::default(),
            cost: Family::default(),
            requests: Family::default(),
            request_seconds: seconds(),
            registry: Arc::default(),
        };
        let mut registry = Registry::with_prefix("stead");
        let r = &mut registry;
        r.register(
            "lease_running_seconds",
            "Running time of the instances of all leases",
            metrics.ran.clone(),
        );
        r.register(
            "lease_cost",
            "Cost of the instances of all leases, by the price of their provider",
            metrics.cost.clone(),
        );
        r.register("terminals_live", "Terminals with a live shell", metrics.terminals_live.clone());
        r.register("watchers", "Clients attached to terminals", metrics.watchers.clone());
        r.register("sessions_opened", "Sessions opened", metrics.sessions_opened.clone());
        r.register("sessions_closed", "Sessions ended", metrics.sessions_closed.clone());
        r.register("session_seconds", "Length of ended sessions", metrics.session_seconds.clone());
        r.register(
            "state_versions_written",
            "Versions of terminal state written",
            metrics.versions_written.clone(),
        );
        r.register("instances_created", "Instances created", metrics.instances_created.clone());
        r.register(
            "instances_failed",
            "Instances that could not be created or were lost",
            metrics.instances_failed.clone(),
        );
        r.register("snapshot_bytes", "Size of screen snapshots", metrics.snapshot_bytes.clone());
        r.register(
            "snapshot_seconds",
            "Time to take a screen snapshot",
            metrics.snapshot_seconds.clone(),
        );
        r.register("reconnects", "Reconnections to hosts", metrics.reconnects.clone());
        r.register(
            "recovery_seconds",
            "Time to recover a lost terminal or lease",
            metrics.recovery_seconds.clone(),
        );
        r.register(
            "recoveries_failed",
            "Recoveries that failed",
            metrics.recoveries_failed.clone(),
        );
        r.register("bytes_in", "Input bytes written to terminals", metrics.bytes_in.clone());
        r.register("bytes_out", "Output bytes read from terminals", metrics.bytes_out.clone());
        r.register("commands", "Commands that ended", metrics.commands.clone());
        r.register("command_seconds", "Duration of commands", metrics.command_seconds.clone());
        r.register("http_connections", "Open connections", metrics.connections.clone());
        r.register(
            "http_evicted",
            "Unauthenticated connections and requests dropped in favor of others",
            metrics.evicted.clone(),
        );
        metrics.register_memories(r);
        r.register("outbound_seconds", "Duration of outbound calls", OUTBOUND.seconds.clone());
        r.register("outbound_timeouts", "Outbound calls that timed out", OUTBOUND.timeouts.clone());
        r.register("http_requests", "Requests answered", metrics.requests.clone());
        r.register(
            "http_request_seconds",
            "Time to the response head",
            metrics.request_seconds.clone(),
        );
        metrics.registry = Arc::new(registry);
        metrics
    }

    fn register_memories(&self, r: &mut Registry) {
        r.register("memory_entries", "Hot memories in RAM", self.memory_entries.clone());
        r.register("memory_bytes", "Bytes of hot memories in RAM", self.memory_bytes.clone());
        r.register(
            "memory_snapshots",
            "Snapshots of hot memories written",
            self.memory_snapshots.clone(),
        );
        r.register(
            "memory_snapshot_bytes",
            "Bytes of snapshots of hot memories written",
            self.memory_snapshot_bytes.clone(),
        );
        r.register(
            "memory_snapshot_seconds",
            "Time spent on snapshots of hot memories",
            self.memory_snapshot_seconds.clone(),
        );
        r.register(
            "memory_snapshot_age_seconds",
            "Age of the oldest change to a hot memory that is in no snapshot",
            self.memory_snapshot_age.clone(),
        );
    }

    /// Sets the total running time and cost of the instances of a provider.
    pub fn ran(&self, provider: &str, time: Duration, cost: f64) {
        let label = ProviderLabel { provider: provider.to_owned() };
        self.ran.get_or_create(&label).set(time.as_secs_f64());
        self.cost.get_or_create(&label).set(cost);
    }

    /// Counts one answered request. `route` is the pattern, which bounds the number of labels.
    pub fn request(&self, method: &http::Method, route: &str, status: u16, time: Duration) {
        let method = match method.as_str() {
            "GET" => "GET",
            "HEAD" => "HEAD",
            "POST" => "POST",
            "PUT" => "PUT",
            "PATCH" => "PATCH",
            "DELETE" => "DELETE",
            _ => "other",
        };
        let labels = RequestLabels { method, route: route.to_owned(), status };
        self.requests.get_or_create(&labels).inc();
        self.request_seconds.observe(time.as_secs_f64());
    }

    /// Encodes all metrics in the Prometheus text format.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_in_the_text() {
        let metrics = ServerMetrics::new();
        metrics.terminals_live.inc();
        metrics.bytes_out.inc_by(7);
        metrics.request(&http::Method::GET, "/x/{id}", 200, Duration::from_millis(2));
        metrics.ran("e2b", Duration::from_millis(1500), 0.25);
        let text = metrics.text().unwrap();
        for line in [
            "stead_lease_running_seconds{provider=\"e2b\"} 1.5",
            "stead_lease_cost{provider=\"e2b\"} 0.25",
            "stead_terminals_live 1",
            "stead_bytes_out_total 7",
            "stead_http_requests_total{method=\"GET\",route=\"/x/{id}\",status=\"200\"} 1",
            "stead_recovery_seconds_count 0",
        ] {
            assert!(text.lines().any(|got| got == line), "{line} not in\n{text}");
        }
    }
}
