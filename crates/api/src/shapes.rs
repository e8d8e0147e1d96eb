//! Schemas of JSON values that the types of other crates serialize to. Only the API document uses them.

#![expect(dead_code, reason = "nothing constructs a schema")]

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

/// Bytes of a file or stream.
#[derive(ToSchema)]
#[schema(as = Binary, value_type = String, format = Binary)]
pub(super) struct BinarySchema(Vec<u8>);

/// Limits of a session.
#[derive(ToSchema)]
#[schema(as = SessionPolicy)]
pub(super) struct SessionPolicySchema {
    /// Seconds without activity after which the session expires.
    idle_timeout_s: u64,
    /// Seconds after which the session expires in any case.
    max_duration_s: u64,
    /// What happens to the instance when the session ends: `keep`, `pause` or `stop`.
    on_expiry: String,
    /// Maximum running time of the instance during the session, in hours; absent if there is no limit.
    #[schema(nullable = false)]
    max_running_hours: Option<f64>,
    /// Maximum cost of the instance during the session; absent if there is no limit.
    #[schema(nullable = false)]
    max_cost: Option<f64>,
}

/// Capabilities of a provider.
#[derive(ToSchema)]
#[schema(as = ProviderCapabilities)]
pub(super) struct CapabilitiesSchema {
    /// Whether terminals are real PTYs.
    hosted: bool,
    /// What a paused instance keeps: `memory`, `filesystem` or `none`.
    pause: String,
    /// Whether resource usage is measured.
    metrics: bool,
    /// The mechanisms that isolate instances; empty if there are none.
    isolation: Vec<String>,
}

/// Settings of a project that differ from the defaults.
#[derive(ToSchema)]
#[schema(as = ProjectConfig)]
pub(super) struct ProjectConfigSchema {
    /// The backend of the files below a prefix: `filesystem`, `state` or `store`.
    #[schema(nullable = false)]
    routes: Option<BTreeMap<String, String>>,
    /// Whether the instance is stopped when the last client disconnects.
    #[schema(nullable = false)]
    stop_on_disconnect: Option<bool>,
    /// Whether a stopped instance is recreated when a client reconnects.
    #[schema(nullable = false)]
    recreate_on_reconnect: Option<bool>,
    /// Idle days after which cleanup deletes the project.
    #[schema(nullable = false)]
    cleanup_after_days: Option<u32>,
}

/// What caused a version of a terminal's state.
#[derive(ToSchema)]
#[schema(as = VersionCause)]
pub(super) struct CauseSchema {
    /// `created`, `exec`, `typed`, `patch`, `rollback` or `fork`.
    kind: String,
    /// Id of the command, for `exec`.
    #[schema(nullable = false)]
    command_id: Option<String>,
    /// The restored version, for `rollback`.
    #[schema(nullable = false)]
    to: Option<u64>,
    /// Id of the copied terminal, for `fork`.
    #[schema(nullable = false)]
    from: Option<String>,
    /// The copied version, for `fork`.
    #[schema(nullable = false)]
    version: Option<u64>,
}

/// A change of the working directory.
#[derive(ToSchema)]
#[schema(as = CwdChange)]
pub(super) struct CwdChangeSchema {
    /// The directory before.
    from: String,
    /// The directory afterwards.
    to: String,
}

/// A change of the exported environment.
#[derive(ToSchema)]
#[schema(as = EnvChange)]
pub(super) struct EnvChangeSchema {
    /// Variables with a new value.
    set: BTreeMap<String, String>,
    /// Names of removed variables.
    unset: Vec<String>,
}

/// Resource usage of an instance.
#[derive(ToSchema)]
#[schema(as = InstanceMetrics)]
pub(super) struct MetricsSchema {
    /// CPU time since the instance was created, in microseconds.
    cpu_us: u64,
    /// Memory in bytes, with shared pages counted proportionally.
    memory_bytes: u64,
    /// Number of processes.
    processes: u64,
    /// Used disk space in bytes.
    disk_bytes: u64,
    /// Limits of the instance; absent if it has none.
    #[schema(nullable = false)]
    limits: Option<LimitsSchema>,
    /// How often limits were reached; absent if there are none.
    #[schema(nullable = false)]
    exceeded: Option<ExceededSchema>,
}

/// Resource limits of an instance.
#[derive(ToSchema)]
#[schema(as = InstanceLimits)]
pub(super) struct LimitsSchema {
    /// Memory in bytes.
    memory_bytes: u64,
    /// Thousandths of a CPU.
    milli_cpus: u64,
    /// Number of processes and threads.
    processes: u64,
    /// Disk space in bytes; absent if it is not limited.
    #[schema(nullable = false)]
    disk_bytes: Option<u64>,
}

/// How often an instance reached its limits since it was created.
#[derive(ToSchema)]
#[schema(as = ExceededLimits)]
pub(super) struct ExceededSchema {
    /// Processes that were killed at the memory limit.
    out_of_memory: u64,
    /// Processes that could not be created at the process limit.
    processes: u64,
    /// How often processes were killed for exceeding the disk quota.
    disk: u64,
}

/// Allowed outgoing connections of a sandbox.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = EgressPolicy)]
pub(super) enum EgressSchema {
    /// `none`, `public`, `all`, or destinations (`HOST:PORT`) separated by commas.
    #[schema(title = "EgressName")]
    Name(String),
    /// Destinations, each `HOST:PORT`.
    #[schema(title = "EgressDestinations")]
    Destinations(Vec<String>),
    /// Rules for addresses and names.
    #[schema(title = "EgressRules")]
    Rules(EgressRulesSchema),
}

/// Rules for outgoing connections, beneath the default of the server.
#[derive(Serialize, ToSchema)]
#[schema(as = EgressRules)]
pub(super) struct EgressRulesSchema {
    /// Addresses, networks and names; takes precedence over `deny`.
    #[schema(nullable = false)]
    allow: Option<Vec<String>>,
    /// Addresses and networks.
    #[schema(nullable = false)]
    deny: Option<Vec<String>>,
}

/// Settings of a sandbox.
#[derive(ToSchema)]
#[schema(as = SandboxSettings)]
pub(super) struct SandboxSettingsSchema {
    /// Image whose files it starts with.
    #[schema(nullable = false)]
    image: Option<String>,
    /// Snapshot whose files it starts with.
    #[schema(nullable = false)]
    snapshot: Option<String>,
    /// Number of CPUs.
    #[schema(nullable = false)]
    cpus: Option<f64>,
    /// Memory limit, e.g. `512m`.
    #[schema(nullable = false)]
    memory: Option<String>,
    /// Maximum number of processes and threads.
    #[schema(nullable = false)]
    processes: Option<u64>,
    /// Disk limit, e.g. `10g`.
    #[schema(nullable = false)]
    disk: Option<String>,
    /// Allowed outgoing connections.
    #[schema(nullable = false)]
    egress: Option<EgressSchema>,
    /// Capabilities of root inside: `root`, or `none` for read-only programs.
    #[schema(nullable = false)]
    capabilities: Option<String>,
}
