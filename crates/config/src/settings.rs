//! The settings as typed values, one struct per section of `stead.toml`.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use super::value::{LogFormat, LogLevel, RouteBackend, Secret, SessionExpiryAction, VendorRuntime};

/// The effective settings of one server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address the server listens on.
    pub listen: SocketAddr,
    /// Directory of everything the server keeps.
    pub home: PathBuf,
    /// Accept every client that can reach the (loopback) address.
    pub no_auth: bool,
    /// Names, besides the address itself, a `Host` header may carry.
    pub names: Vec<String>,
    /// Files of the certificate and the key; both or neither are set.
    pub tls: TlsFiles,
    /// A proxy in front of the server terminates TLS.
    pub behind_proxy: bool,
    /// Default provider, or `auto`.
    pub provider: String,
    /// Shape of the log on standard error.
    pub log_format: LogFormat,
    /// Minimum log level.
    pub log_level: LogLevel,
    /// Limits of requests.
    pub limits: RequestLimits,
    /// Policy of a session whose thread has none of its own.
    pub policy: Policy,
    /// Terminals: how many, how large, for how long.
    pub terminal: TerminalLimits,
    /// Defaults of sandboxes.
    pub sandbox: SandboxDefaults,
    /// The engine of containers.
    pub docker: Containers,
    /// Sandboxes of E2B.
    pub e2b: E2b,
    /// Sandboxes of Daytona.
    pub daytona: Daytona,
    /// Sessions of AgentBay.
    pub agentbay: AgentBay,
    /// Projects: how many, and for how long unused.
    pub project: ProjectLimits,
    /// Hot memories: how much, and how often they are written out.
    pub memory: Memories,
    /// How long old states of a terminal are kept.
    pub history: History,
}

/// The files that TLS on the server's own port needs. [`Settings::tls_files`] has the pair.
#[derive(Debug, Clone, Default)]
pub struct TlsFiles {
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

/// Defaults of sandboxes, in the format of a lease's `spec`.
#[derive(Debug, Clone)]
pub struct SandboxDefaults {
    /// The OCI runtime.
    pub runtime: String,
    /// Memory, or `auto`.
    pub memory: String,
    /// Processors, or `auto`.
    pub cpus: String,
    /// Processes and threads.
    pub processes: u64,
    /// Disk.
    pub disk: String,
    /// What may be reached.
    pub egress: String,
    /// Directories of this machine that are shown read-only.
    pub show: Vec<String>,
    /// How many of a kind are kept ready.
    pub warm: usize,
    /// How many processors are kept free of those that compute for long.
    pub reserve_cpus: usize,
    /// Bytes a second that may be written to a disk; 0 is no bound.
    pub disk_rate: u64,
}

/// The engine of containers.
#[derive(Debug, Clone)]
pub struct Containers {
    /// Its address, or `auto`.
    pub host: String,
    /// The image of a container that names none, or `auto`.
    pub image: String,
}

/// Sandboxes of E2B.
#[derive(Debug, Clone)]
pub struct E2b {
    /// The API key; empty if the provider is not used.
    pub key: Secret,
    /// The URL of the API, or `auto`.
    pub endpoint: String,
    /// Where the daemons of its sandboxes are, or `auto`.
    pub sandbox_url: String,
    /// The default template.
    pub template: String,
    /// How long a sandbox runs on when this server is gone.
    pub timeout: Duration,
    pub price: f64,
    /// Where the host keeps its files inside.
    pub directory: String,
    /// What terminals stand on.
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
    /// How long a sandbox runs on when this server is gone.
    pub auto_stop: Duration,
    pub price: f64,
    /// Where the host keeps its files inside.
    pub directory: String,
    /// What terminals stand on.
    pub runtime: VendorRuntime,
}

/// Sessions of AgentBay.
#[derive(Debug, Clone)]
pub struct AgentBay {
    /// The API key; empty if the provider is not used.
    pub key: Secret,
    /// The URL of the API, or `auto`.
    pub endpoint: String,
    /// The image of a session that names none.
    pub image: String,
    /// How long a session is kept when this server is gone.
    pub timeout: Duration,
    pub price: f64,
    /// Where we keep our files inside.
    pub directory: String,
}

/// Limits of requests.
#[derive(Debug, Clone)]
pub struct RequestLimits {
    /// Largest request body.
    pub body_bytes: usize,
    /// Largest body that is a file.
    pub file_bytes: usize,
    /// Largest WebSocket message from a client.
    pub frame_bytes: usize,
    /// Connections open at once.
    pub connections: usize,
    /// Requests being answered at once, open streams not counted.
    pub requests: usize,
    /// Time to send a whole request head.
    pub header_time: Duration,
    /// Longest silence within a request body, and the time a body has whatever its size.
    pub body_time: Duration,
    /// Bytes a second that a body which takes longer must average.
    pub body_rate: usize,
    /// Time a program in a sandbox has to begin its answer.
    pub proxy_time: Duration,
    /// Time a client may leave what we sent unread before it is cut off.
    pub stall_time: Duration,
}

/// Policy of a session whose thread has none of its own.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Time without use after which a session expires.
    pub idle_timeout: Duration,
    /// Longest life of a session.
    pub max_duration: Duration,
    /// Notice given before a session expires.
    pub warn_before: Duration,
    /// What happens to the compute of an expired session.
    pub on_expiry: SessionExpiryAction,
}

/// Terminals: how many, how large, for how long.
#[derive(Debug, Clone)]
pub struct TerminalLimits {
    /// Terminals one thread may have.
    pub max_per_thread: usize,
    /// Terminals the server may have.
    pub max: usize,
    /// End a terminal that was unused for this long; zero means never.
    pub idle_limit: Duration,
    /// Output kept of each terminal.
    pub log_limit_bytes: u64,
    /// Lines of scrollback the screen keeps.
    pub scrollback: usize,
    /// Answer DECRQCRA, which lets a program read the screen back.
    pub checksum_reports: bool,
}

/// Projects: how many, and for how long unused.
#[derive(Debug, Clone)]
pub struct ProjectLimits {
    /// Projects the server may have.
    pub max_projects: u64,
    pub cleanup_enabled: bool,
    /// Days without use; a project is deleted on the day after.
    pub cleanup_after_days: u64,
    /// How many of the last days bring a warning.
    pub cleanup_warning_days: u64,
    /// Time between two checks of all projects.
    pub cleanup_check_interval: Duration,
    /// How long a deleted project can be restored.
    pub trash_time: Duration,
    /// Largest project that is imported, unpacked.
    pub import_bytes: u64,
    /// Stop the instances of a project when its last client leaves.
    pub stop_on_disconnect: bool,
    /// Make a stopped instance again for a client that comes back.
    pub recreate_on_reconnect: bool,
    /// How long the last client may be away before anything is stopped.
    pub disconnect_grace: Duration,
    /// Backends of the file tree by prefix, where a project does not choose others.
    pub routes: BTreeMap<String, RouteBackend>,
}

/// Hot memories: how much, and how often they are written out.
#[derive(Debug, Clone)]
pub struct Memories {
    /// Time between two snapshots.
    pub snapshot_interval: Duration,
    /// Entries one project may have.
    pub max_entries: u64,
    /// Bytes one project may have.
    pub max_bytes: u64,
    /// Largest entry.
    pub max_entry_bytes: u64,
}

/// How long old states of a terminal are kept.
#[derive(Debug, Clone)]
pub struct History {
    /// State versions kept of each terminal.
    pub versions: usize,
    /// Age at which a version may go.
    pub age: Duration,
}
