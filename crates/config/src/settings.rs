//! The settings as typed values, one struct per section of `stead.toml`.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use super::value::{LogFormat, LogLevel, RouteBackend, Secret, SessionExpiryAction, VendorRuntime};

/// The effective settings of one server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address the server listens on.
    pub listen: SocketAddr,
    /// Data directory of the server.
    pub home: PathBuf,
    /// Accept every client that can reach the (loopback) address.
    pub no_auth: bool,
    /// Host names that a `Host` header may contain, in addition to the address itself.
    pub names: Vec<String>,
    /// Files of the certificate and the key; both or neither are set.
    pub tls: TlsFiles,
    /// A proxy in front of the server terminates TLS.
    pub behind_proxy: bool,
    /// Default provider, or `auto`.
    pub provider: String,
    /// Serve the fixtures of the MCP conformance suite.
    pub mcp_fixtures: bool,
    /// Format of the log on standard error.
    pub log_format: LogFormat,
    /// Minimum log level.
    pub log_level: LogLevel,
    pub limits: RequestLimits,
    /// Default session policy.
    pub policy: Policy,
    pub terminal: TerminalLimits,
    pub sandbox: SandboxDefaults,
    pub docker: Containers,
    pub image: PulledImages,
    pub volume: VolumeDefaults,
    pub e2b: E2b,
    pub daytona: Daytona,
    pub agentbay: AgentBay,
    pub project: ProjectLimits,
    pub memory: Memories,
    pub notify: Notify,
    pub store: Database,
    pub telemetry: Telemetry,
    pub history: History,
}

/// The TLS files of the server's own port. [`Settings::tls_files`] returns the pair.
#[derive(Debug, Clone, Default)]
pub struct TlsFiles {
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

/// Default limits of sandboxes, in the format of a lease's `spec`.
#[derive(Debug, Clone)]
pub struct SandboxDefaults {
    /// The OCI runtime.
    pub runtime: String,
    /// Memory, or `auto`.
    pub memory: String,
    /// CPUs, or `auto`.
    pub cpus: String,
    /// Maximum number of processes and threads.
    pub processes: u64,
    /// Disk quota.
    pub disk: String,
    /// Network egress.
    pub egress: String,
    /// The capabilities of root inside: `root` or `none`.
    pub capabilities: String,
    /// Directories of this machine that are mounted read-only.
    pub show: Vec<String>,
    /// Warm sandboxes per kind.
    pub warm: usize,
    /// CPUs from which CPU-heavy sandboxes are kept off.
    pub reserve_cpus: usize,
    /// Bytes per second that heavy writers are slowed down to while others wait for the disk; 0 means never.
    pub disk_rate: u64,
}

/// The container engine.
#[derive(Debug, Clone)]
pub struct Containers {
    /// Address of the engine's socket, or `auto`.
    pub host: String,
    /// The default image, or `auto`.
    pub image: String,
}

/// Images that are pulled from registries.
#[derive(Debug, Clone)]
pub struct PulledImages {
    /// File with credentials, or `auto`.
    pub credentials: String,
    /// Registries without TLS.
    pub plain_http: Vec<String>,
    /// Maximum size of an image in bytes.
    pub max_size: u64,
    /// Maximum size of unreferenced layers in bytes.
    pub cache: u64,
    /// Maximum size of all images in bytes.
    pub max_total: u64,
}

/// Volumes that sandboxes share.
#[derive(Debug, Clone)]
pub struct VolumeDefaults {
    /// Size in bytes of a volume that is created without one; 0 for none.
    pub size: u64,
}

/// Sandboxes of E2B.
#[derive(Debug, Clone)]
pub struct E2b {
    /// The API key; empty if the provider is not used.
    pub key: Secret,
    /// The URL of the API, or `auto`.
    pub endpoint: String,
    /// The URL of the daemons in the sandboxes, or `auto`.
    pub sandbox_url: String,
    /// The default template.
    pub template: String,
    /// How long a sandbox keeps running after its last contact with this server.
    pub timeout: Duration,
    pub price: f64,
    /// The host's directory inside the sandbox.
    pub directory: String,
    /// How terminals run in the sandbox.
    pub runtime: VendorRuntime,
}

/// Sandboxes of Daytona.
#[derive(Debug, Clone)]
pub struct Daytona {
    /// The API key; empty if the provider is not used.
    pub key: Secret,
    /// The URL of the API, or `auto`.
    pub endpoint: String,
    /// The default snapshot, or `auto`.
    pub snapshot: String,
    /// How long a sandbox keeps running after its last contact with this server.
    pub auto_stop: Duration,
    pub price: f64,
    /// The host's directory inside the sandbox.
    pub directory: String,
    /// How terminals run in the sandbox.
    pub runtime: VendorRuntime,
}

/// Sessions of AgentBay.
#[derive(Debug, Clone)]
pub struct AgentBay {
    /// The API key; empty if the provider is not used.
    pub key: Secret,
    /// The URL of the API, or `auto`.
    pub endpoint: String,
    /// The default image.
    pub image: String,
    /// How long a session is kept after its last contact with this server.
    pub timeout: Duration,
    pub price: f64,
    /// Our directory inside the session.
    pub directory: String,
}

/// Limits on requests and connections.
#[derive(Debug, Clone)]
pub struct RequestLimits {
    /// Maximum size of a request body.
    pub body_bytes: usize,
    /// Maximum size of a request body that is a file.
    pub file_bytes: usize,
    /// Maximum size of a WebSocket message from a client.
    pub frame_bytes: usize,
    /// Maximum number of open connections.
    pub connections: usize,
    /// Maximum number of concurrent requests, not counting open streams.
    pub requests: usize,
    /// Timeout for a request head.
    pub header_time: Duration,
    /// Read timeout within a request body, and the minimum time a body of any size has.
    pub body_time: Duration,
    /// Minimum average rate of a longer body, in bytes per second.
    pub body_rate: usize,
    /// Timeout for the response head of a program in a sandbox.
    pub proxy_time: Duration,
    /// Write timeout: how long a client may leave sent data unread before it is disconnected.
    pub stall_time: Duration,
}

/// The default session policy; a thread may override it.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Idle time after which a session expires.
    pub idle_timeout: Duration,
    /// Maximum lifetime of a session.
    pub max_duration: Duration,
    /// How long before its expiry a session is warned.
    pub warn_before: Duration,
    /// What happens to the compute of an expired session.
    pub on_expiry: SessionExpiryAction,
}

/// Limits on terminals.
#[derive(Debug, Clone)]
pub struct TerminalLimits {
    /// Maximum number of terminals per thread.
    pub max_per_thread: usize,
    /// Maximum number of terminals of the server.
    pub max: usize,
    /// Idle time after which a terminal is ended; zero means never.
    pub idle_limit: Duration,
    /// Bytes of output kept per terminal.
    pub log_limit_bytes: u64,
    /// Lines of scrollback.
    pub scrollback: usize,
    /// Answer DECRQCRA, which lets a program read the screen back.
    pub checksum_reports: bool,
}

/// Limits on projects, and the cleanup of unused ones.
#[derive(Debug, Clone)]
pub struct ProjectLimits {
    /// Maximum number of projects.
    pub max_projects: u64,
    pub cleanup_enabled: bool,
    /// Idle days; a project is deleted on the following day.
    pub cleanup_after_days: u64,
    /// Number of days before the deletion on which a warning is published.
    pub cleanup_warning_days: u64,
    /// Interval between checks of all projects.
    pub cleanup_check_interval: Duration,
    /// How long a deleted project can be restored.
    pub trash_time: Duration,
    /// Maximum unpacked size of an imported project.
    pub import_bytes: u64,
    /// Stop the instances of a project when its last client disconnects.
    pub stop_on_disconnect: bool,
    /// Recreate a stopped instance when a client reconnects.
    pub recreate_on_reconnect: bool,
    /// Grace period after the last client disconnects.
    pub disconnect_grace: Duration,
    /// Default backends of the file tree, by prefix.
    pub routes: BTreeMap<String, RouteBackend>,
}

/// Limits on hot memories, and their snapshot interval.
#[derive(Debug, Clone)]
pub struct Memories {
    /// Interval between snapshots.
    pub snapshot_interval: Duration,
    /// Maximum number of entries per project.
    pub max_entries: u64,
    /// Maximum number of bytes per project.
    pub max_bytes: u64,
    /// Maximum size of an entry.
    pub max_entry_bytes: u64,
}

/// Notifications of hand-offs; without a secret there is no webhook.
#[derive(Debug, Clone)]
pub struct Notify {
    /// URL of the webhook.
    pub webhook: Option<String>,
    /// Key of the signature.
    pub secret: Secret,
}

/// Where the rows are.
#[derive(Debug, Clone)]
pub struct Database {
    /// URL of a database of PostgreSQL; empty for a file in the home. It may contain a password.
    pub url: Secret,
}

/// Traces of requests.
#[derive(Debug, Clone)]
pub struct Telemetry {
    /// URL of an OTLP receiver; without it nothing is traced.
    pub otlp_endpoint: Option<String>,
}

/// Retention of terminal state versions.
#[derive(Debug, Clone)]
pub struct History {
    /// State versions kept per terminal.
    pub versions: usize,
    /// Age after which a version may be deleted.
    pub age: Duration,
}
