//! The one list of settings: name, default, description and field.

use std::{collections::BTreeMap, net::Ipv4Addr, path::PathBuf, time::Duration};

use super::{
    settings::{
        AgentBay, Containers, Database, Daytona, E2b, History, Memories, Notify, Policy,
        ProjectLimits, PulledImages, RequestLimits, SandboxDefaults, Settings, Telemetry,
        TerminalLimits, TlsFiles, VolumeDefaults,
    },
    value::{LogFormat, LogLevel, Secret, SessionExpiryAction, VendorRuntime, put},
};

/// One row of the table.
pub(super) struct Setting {
    pub(super) key: &'static str,
    pub(super) default: &'static str,
    pub(super) doc: &'static str,
    pub(super) put: fn(&mut Settings, &str) -> Result<(), String>,
}

/// The secret settings, each with the environment variable that the vendor's own programs read.
pub(super) const KEYS: &[(&str, &str)] = &[
    ("e2b.key", "E2B_API_KEY"),
    ("daytona.key", "DAYTONA_API_KEY"),
    ("agentbay.key", "AGENTBAY_API_KEY"),
];

/// Settings that have another variable by a common standard.
pub(super) const STANDARD_VARIABLES: &[(&str, &str)] =
    &[("telemetry.otlp_endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT")];

/// The secret settings that no vendor's program reads.
pub(super) const OWN_SECRETS: &[&str] = &["notify.secret", "store.url"];

/// Returns the setting with a key.
pub(super) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

macro_rules! settings {
    ($($key:literal = $default:literal => $($field:ident).+, $doc:literal;)*) => {
        pub(super) const SETTINGS: &[Setting] = &[$(Setting {
            key: $key,
            default: $default,
            doc: $doc,
            put: |settings, text| put(&mut settings.$($field).+, text),
        }),*];
    };
}

settings! {
    "listen" = "127.0.0.1:7832" => listen,
        "address the server listens on; port 0 picks a free port";
    "home" = "" => home,
        "data directory of the server (default ~/.stead)";
    "no_auth" = "false" => no_auth,
        "accept every client without a token; allowed only on a loopback address";
    "names" = "" => names,
        "host names that clients may use in addition to the address itself, separated by commas";
    "tls.cert" = "" => tls.cert,
        "PEM file with the certificate chain of the server's port; reloaded when it changes";
    "tls.key" = "" => tls.key,
        "PEM file with the private key of tls.cert";
    "behind_proxy" = "false" => behind_proxy,
        "a proxy in front of the server terminates TLS and appends the client to X-Forwarded-For; allows plain HTTP on non-loopback addresses";
    "store.url" = "" => store.url,
        "URL of the PostgreSQL database that has the rows (postgres://USER@HOST/DATABASE); empty: a file in the home";
    "provider" = "auto" => provider,
        "default provider; auto: namespace if this machine supports it (with a network, if not as root), else local";
    "mcp.fixtures" = "false" => mcp_fixtures,
        "serve the tools, resources and prompts of the MCP conformance suite; allowed only on a loopback address";
    "log_format" = "text" => log_format,
        "format of the log on standard error: text or json";
    "log_level" = "info" => log_level,
        "minimum log level: error, warn, info, debug or trace";
    "limits.body_bytes" = "8MiB" => limits.body_bytes,
        "maximum size of a request body";
    "limits.file_bytes" = "64GiB" => limits.file_bytes,
        "maximum size of a file that a client writes or an archive that it imports";
    "limits.frame_bytes" = "1MiB" => limits.frame_bytes,
        "maximum size of a WebSocket message from a client";
    "limits.connections" = "16384" => limits.connections,
        "maximum number of open connections, at most half the file descriptors; up to a quarter may \
         be unauthenticated";
    "limits.requests" = "1024" => limits.requests,
        "maximum number of concurrent requests of the owner, not counting open streams; further \
         requests get a 503. Programs in sandboxes and the holders of their keys have the same limit \
         each";
    "limits.header_time" = "10s" => limits.header_time,
        "timeout for a request head, and for an idle connection";
    "limits.body_time" = "10s" => limits.body_time,
        "read timeout within a request body, and the minimum time for a body of any size";
    "limits.body_rate" = "1KiB" => limits.body_rate,
        "minimum average rate of a body that takes longer, in bytes per second";
    "limits.proxy_time" = "2m" => limits.proxy_time,
        "timeout for the response head of a program in a sandbox";
    "limits.stall_time" = "60s" => limits.stall_time,
        "how long a client may leave sent data unread before it is disconnected";
    "policy.idle_timeout" = "30m" => policy.idle_timeout,
        "idle time after which a session expires";
    "policy.max_duration" = "24h" => policy.max_duration,
        "maximum lifetime of a session";
    "policy.warn_before" = "2m" => policy.warn_before,
        "how long before its expiry a session is warned";
    "policy.on_expiry" = "pause" => policy.on_expiry,
        "what happens to the compute of an expired session: keep, pause or stop";
    "terminal.max_per_thread" = "64" => terminal.max_per_thread,
        "maximum number of terminals per thread";
    "terminal.max" = "4000" => terminal.max,
        "maximum number of terminals of the server";
    "terminal.idle_limit" = "0s" => terminal.idle_limit,
        "idle time after which a terminal is ended; 0 disables it";
    "terminal.log_limit_bytes" = "16MiB" => terminal.log_limit_bytes,
        "bytes of output kept per terminal";
    "terminal.scrollback" = "5000" => terminal.scrollback,
        "lines of scrollback per terminal";
    "vt.checksum_reports" = "false" => terminal.checksum_reports,
        "answer DECRQCRA, which lets a program read the screen; for conformance tests";
    "sandbox.runtime" = "stead" => sandbox.runtime,
        "OCI runtime of sandboxes: `stead` for the built-in one, or a name or path such as runc";
    "sandbox.memory" = "auto" => sandbox.memory,
        "default memory of a sandbox; auto: half of this machine's, at most 4 GiB";
    "sandbox.cpus" = "auto" => sandbox.cpus,
        "default CPUs of a sandbox; auto: three quarters of this machine's";
    "sandbox.processes" = "1024" => sandbox.processes,
        "default maximum number of processes and threads of a sandbox";
    "sandbox.disk" = "8GiB" => sandbox.disk,
        "default disk quota of a sandbox";
    "sandbox.egress" = "public" => sandbox.egress,
        "default network egress of a sandbox: none, public, all, or host:port,host:port";
    "sandbox.capabilities" = "root" => sandbox.capabilities,
        "default capabilities of root in a sandbox, over its own files and users: root or none";
    "sandbox.show" = "" => sandbox.show,
        "directories of this machine that sandboxes see read-only in addition to /usr, separated by commas";
    "sandbox.warm" = "1" => sandbox.warm,
        "warm sandboxes of each kind that are kept ready for new threads; 0 disables it";
    "sandbox.reserve_cpus" = "1" => sandbox.reserve_cpus,
        "CPUs from which CPU-heavy sandboxes are kept off, but never all CPUs; 0 disables it";
    "sandbox.disk_rate" = "64MiB" => sandbox.disk_rate,
        "bytes per second that heavy writers are slowed to while others wait for the disk; 0 disables it";
    "docker.host" = "auto" => docker.host,
        "socket of the container engine (unix:///…); auto: DOCKER_HOST, else Docker's, else Podman's";
    "docker.image" = "auto" => docker.image,
        "default image of a container, imported or from a registry; auto: this machine's programs";
    "image.credentials" = "auto" => image.credentials,
        "file with credentials for registries, in the format of Docker's config.json; auto: registries.json in the home";
    "image.plain_http" = "" => image.plain_http,
        "registries (host:port) to which plain HTTP is spoken, besides those of this machine, separated by commas";
    "image.max_size" = "16GiB" => image.max_size,
        "size of an image, compressed or unpacked, above which it is not pulled";
    "image.cache" = "2GiB" => image.cache,
        "size up to which layers that no image needs any more are kept for the next pull";
    "image.max_total" = "64GiB" => image.max_total,
        "size of all pulled images above which those that no sandbox uses are removed, the least recently used first";
    "volume.size" = "10GiB" => volume.size,
        "size of a volume that is created without one; 0 for none. Needs root";
    "e2b.key" = "" => e2b.key,
        "API key of E2B; without it the provider e2b is off (also read from E2B_API_KEY)";
    "e2b.endpoint" = "auto" => e2b.endpoint,
        "URL of the E2B API or of a compatible one; auto: E2B's own";
    "e2b.sandbox_url" = "auto" => e2b.sandbox_url,
        "one URL for the daemons of all sandboxes; auto: E2B's own, or e2b.endpoint if it is set";
    "e2b.template" = "base" => e2b.template,
        "default template of an E2B sandbox";
    "e2b.timeout" = "15m" => e2b.timeout,
        "time after the last contact with this server at which an E2B sandbox is paused";
    "e2b.price_per_hour" = "0" => e2b.price,
        "price of an E2B sandbox per hour, for max_cost and the cost of a lease";
    "e2b.directory" = "/tmp" => e2b.directory,
        "directory inside an E2B sandbox for the files of the host";
    "e2b.runtime" = "host" => e2b.runtime,
        "how terminals run in an E2B sandbox: host (our host program inside), or remote (commands only, no PTY)";
    "daytona.key" = "" => daytona.key,
        "API key of Daytona; without it the provider daytona is off (also read from DAYTONA_API_KEY)";
    "daytona.endpoint" = "auto" => daytona.endpoint,
        "URL of the Daytona API or of a compatible one; auto: Daytona's own";
    "daytona.snapshot" = "auto" => daytona.snapshot,
        "default snapshot of a Daytona sandbox; auto: Daytona's own choice";
    "daytona.auto_stop" = "15m" => daytona.auto_stop,
        "time after the last contact with this server at which a Daytona sandbox is stopped; whole minutes";
    "daytona.price_per_hour" = "0" => daytona.price,
        "price of a Daytona sandbox per hour, for max_cost and the cost of a lease";
    "daytona.directory" = "/tmp" => daytona.directory,
        "directory inside a Daytona sandbox for the files of the host";
    "daytona.runtime" = "host" => daytona.runtime,
        "how terminals run in a Daytona sandbox: host (our host program inside), or remote (commands only, no PTY)";
    "agentbay.key" = "" => agentbay.key,
        "API key of AgentBay; without it the provider agentbay is off (also read from AGENTBAY_API_KEY)";
    "agentbay.endpoint" = "auto" => agentbay.endpoint,
        "URL of the AgentBay API or of a compatible one; auto: AgentBay's own in cn-hangzhou";
    "agentbay.image" = "linux_latest" => agentbay.image,
        "default image of an AgentBay session";
    "agentbay.timeout" = "15m" => agentbay.timeout,
        "time after the last contact with this server at which AgentBay may end a session";
    "agentbay.price_per_hour" = "0" => agentbay.price,
        "price of an AgentBay session per hour, for max_cost and the cost of a lease";
    "agentbay.directory" = "/tmp" => agentbay.directory,
        "directory inside an AgentBay session for our files";
    "max_projects" = "1000" => project.max_projects,
        "maximum number of projects";
    "project.cleanup_enabled" = "true" => project.cleanup_enabled,
        "delete unused projects";
    "project.cleanup_after_days" = "30" => project.cleanup_after_days,
        "idle days; a project is deleted on the following day";
    "project.cleanup_warning_days" = "3" => project.cleanup_warning_days,
        "number of days before the deletion on which a warning is published";
    "project.cleanup_check_interval" = "24h" => project.cleanup_check_interval,
        "interval between checks of all projects; the first runs at startup";
    "project.trash_time" = "7d" => project.trash_time,
        "how long a deleted project can be restored";
    "project.import_bytes" = "32GiB" => project.import_bytes,
        "maximum unpacked size of an imported project";
    "project.stop_on_disconnect" = "false" => project.stop_on_disconnect,
        "stop the instances of a project when its last client disconnects; a project may override it";
    "project.recreate_on_reconnect" = "true" => project.recreate_on_reconnect,
        "recreate a stopped instance when a client reconnects; a project may override it";
    "project.disconnect_grace" = "10s" => project.disconnect_grace,
        "grace period after the last client disconnects, before instances are stopped";
    "project.routes" = "/workspace=filesystem,/memories/hot=state,/memories/persistent=filesystem"
        => project.routes,
        "backends of the file tree by prefix: filesystem (disk), state (memory) or store (database); \
         a project may override them";
    "memory.snapshot_interval" = "5m" => memory.snapshot_interval,
        "interval between snapshots of the hot memories";
    "memory.max_entries" = "10000" => memory.max_entries,
        "maximum number of hot memories per project";
    "memory.max_bytes" = "64MiB" => memory.max_bytes,
        "maximum size of all hot memories of a project";
    "memory.max_entry_bytes" = "4MiB" => memory.max_entry_bytes,
        "maximum size of one hot memory";
    "notify.webhook" = "" => notify.webhook,
        "URL that receives a signed POST for every hand-off that an agent opens; empty disables it";
    "notify.secret" = "" => notify.secret,
        "key of the signature (HMAC-SHA-256) of notify.webhook's requests";
    "telemetry.otlp_endpoint" = "" => telemetry.otlp_endpoint,
        "URL of an OpenTelemetry receiver (OTLP over HTTP) for traces; empty disables it; OTEL_EXPORTER_OTLP_ENDPOINT sets it, too";
    "history.versions" = "1000" => history.versions,
        "state versions kept per terminal";
    "history.age" = "30d" => history.age,
        "age after which a state version may be deleted";
}

/// Returns settings with empty values, to be filled from the table.
pub(super) fn blank() -> Settings {
    Settings {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        home: PathBuf::new(),
        no_auth: false,
        names: Vec::new(),
        tls: TlsFiles::default(),
        behind_proxy: false,
        provider: String::new(),
        mcp_fixtures: false,
        log_format: LogFormat::Text,
        log_level: LogLevel::Info,
        limits: RequestLimits {
            body_bytes: 0,
            file_bytes: 0,
            frame_bytes: 0,
            connections: 0,
            requests: 0,
            header_time: Duration::ZERO,
            body_time: Duration::ZERO,
            body_rate: 0,
            proxy_time: Duration::ZERO,
            stall_time: Duration::ZERO,
        },
        policy: Policy {
            idle_timeout: Duration::ZERO,
            max_duration: Duration::ZERO,
            warn_before: Duration::ZERO,
            on_expiry: SessionExpiryAction::Keep,
        },
        terminal: TerminalLimits {
            max_per_thread: 0,
            max: 0,
            idle_limit: Duration::ZERO,
            log_limit_bytes: 0,
            scrollback: 0,
            checksum_reports: false,
        },
        sandbox: SandboxDefaults {
            runtime: String::new(),
            memory: String::new(),
            cpus: String::new(),
            processes: 0,
            disk: String::new(),
            egress: String::new(),
            capabilities: String::new(),
            show: Vec::new(),
            warm: 0,
            reserve_cpus: 0,
            disk_rate: 0,
        },
        docker: Containers { host: String::new(), image: String::new() },
        image: PulledImages {
            credentials: String::new(),
            plain_http: Vec::new(),
            max_size: 0,
            cache: 0,
            max_total: 0,
        },
        volume: VolumeDefaults { size: 0 },
        e2b: E2b {
            key: Secret::default(),
            endpoint: String::new(),
            sandbox_url: String::new(),
            template: String::new(),
            timeout: Duration::ZERO,
            price: 0.0,
            directory: String::new(),
            runtime: VendorRuntime::Host,
        },
        daytona: Daytona {
            key: Secret::default(),
            endpoint: String::new(),
            snapshot: String::new(),
            auto_stop: Duration::ZERO,
            price: 0.0,
            directory: String::new(),
            runtime: VendorRuntime::Host,
        },
        agentbay: AgentBay {
            key: Secret::default(),
            endpoint: String::new(),
            image: String::new(),
            timeout: Duration::ZERO,
            price: 0.0,
            directory: String::new(),
        },
        project: ProjectLimits {
            max_projects: 0,
            cleanup_enabled: false,
            cleanup_after_days: 0,
            cleanup_warning_days: 0,
            cleanup_check_interval: Duration::ZERO,
            trash_time: Duration::ZERO,
            import_bytes: 0,
            stop_on_disconnect: false,
            recreate_on_reconnect: false,
            disconnect_grace: Duration::ZERO,
            routes: BTreeMap::new(),
        },
        memory: Memories {
            snapshot_interval: Duration::ZERO,
            max_entries: 0,
            max_bytes: 0,
            max_entry_bytes: 0,
        },
        store: Database { url: Secret::default() },
        notify: Notify { webhook: None, secret: Secret::default() },
        telemetry: Telemetry { otlp_endpoint: None },
        history: History { versions: 0, age: Duration::ZERO },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_but_the_home_is_a_valid_value() {
        let mut settings = blank();
        for setting in SETTINGS {
            let value = if setting.key == "home" { "/h" } else { setting.default };
            assert_eq!((setting.put)(&mut settings, value), Ok(()), "{}", setting.key);
        }
        assert_eq!(settings.limits.body_bytes, 8 << 20);
        assert_eq!(settings.policy.max_duration, Duration::from_secs(86_400));
    }
}
