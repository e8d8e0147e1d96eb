//! The one list of settings: name, default, meaning, and where the value goes.

use std::{collections::BTreeMap, net::Ipv4Addr, path::PathBuf, time::Duration};

use super::{
    settings::{
        AgentBay, Containers, Daytona, E2b, History, Memories, Policy, ProjectLimits,
        RequestLimits, SandboxDefaults, Settings, TerminalLimits, TlsFiles,
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

/// The settings that are secret, each with the variable that its vendor's own programs read.
pub(super) const KEYS: &[(&str, &str)] = &[
    ("e2b.key", "E2B_API_KEY"),
    ("daytona.key", "DAYTONA_API_KEY"),
    ("agentbay.key", "AGENTBAY_API_KEY"),
];

/// The row of that name.
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
        "address the server listens on; port 0 takes a free one";
    "home" = "" => home,
        "directory of everything the server keeps (default ~/.stead)";
    "no_auth" = "false" => no_auth,
        "let anyone who can reach the address in; refused unless it is loopback";
    "names" = "" => names,
        "host names clients may use besides the address itself, separated by commas";
    "tls.cert" = "" => tls.cert,
        "PEM file with the certificate chain of the server's port; read again when it changes";
    "tls.key" = "" => tls.key,
        "PEM file with the private key of tls.cert";
    "behind_proxy" = "false" => behind_proxy,
        "a proxy in front of the server terminates TLS; allows plain HTTP on addresses other than loopback";
    "provider" = "auto" => provider,
        "provider of a thread that names none; auto: namespace where this machine can, else local";
    "log_format" = "text" => log_format,
        "log on standard error: text or json";
    "log_level" = "info" => log_level,
        "least important log line written: error, warn, info, debug or trace";
    "limits.body_bytes" = "8MiB" => limits.body_bytes,
        "largest request body";
    "limits.file_bytes" = "64GiB" => limits.file_bytes,
        "largest file a client may write, and largest archive it may import";
    "limits.frame_bytes" = "1MiB" => limits.frame_bytes,
        "largest WebSocket message from a client";
    "limits.connections" = "16384" => limits.connections,
        "connections open at once, at most half the descriptors; a quarter may be unauthenticated";
    "limits.requests" = "1024" => limits.requests,
        "requests of the owner being answered at once, open streams not counted; further ones get \
         a 503. Programs in sandboxes and the holders of their keys have as many each";
    "limits.header_time" = "10s" => limits.header_time,
        "time a client has to send a request head, and to leave a connection idle";
    "limits.body_time" = "10s" => limits.body_time,
        "longest silence within a request body, and the time a body has whatever its size";
    "limits.body_rate" = "1KiB" => limits.body_rate,
        "bytes a second that a body which takes longer must average";
    "limits.proxy_time" = "2m" => limits.proxy_time,
        "time a program in a sandbox has to begin its answer to a request";
    "limits.stall_time" = "60s" => limits.stall_time,
        "time a client may leave what was sent unread before it is cut off";
    "policy.idle_timeout" = "30m" => policy.idle_timeout,
        "a session unused for this long expires";
    "policy.max_duration" = "24h" => policy.max_duration,
        "longest life of a session";
    "policy.warn_before" = "2m" => policy.warn_before,
        "notice given before a session expires";
    "policy.on_expiry" = "pause" => policy.on_expiry,
        "what happens to the compute of an expired session: keep, pause or stop";
    "terminal.max_per_thread" = "64" => terminal.max_per_thread,
        "terminals one thread may have";
    "terminal.max" = "4000" => terminal.max,
        "terminals the server may have";
    "terminal.idle_limit" = "0s" => terminal.idle_limit,
        "end a terminal unused for this long; 0 is never";
    "terminal.log_limit_bytes" = "16MiB" => terminal.log_limit_bytes,
        "output kept of each terminal";
    "terminal.scrollback" = "5000" => terminal.scrollback,
        "lines of scrollback the screen keeps";
    "vt.checksum_reports" = "false" => terminal.checksum_reports,
        "answer DECRQCRA, which lets a program read the screen back; for conformance runs";
    "sandbox.runtime" = "stead" => sandbox.runtime,
        "OCI runtime of sandboxes: `stead` for the one that is built in, or a name or path such as runc";
    "sandbox.memory" = "auto" => sandbox.memory,
        "memory of a sandbox that names none; auto: half of this machine's, at most 4 GiB";
    "sandbox.cpus" = "auto" => sandbox.cpus,
        "processors of a sandbox that names none; auto: three quarters of this machine's";
    "sandbox.processes" = "1024" => sandbox.processes,
        "processes and threads of a sandbox that names none";
    "sandbox.disk" = "8GiB" => sandbox.disk,
        "disk of a sandbox that names none";
    "sandbox.egress" = "public" => sandbox.egress,
        "what a sandbox may reach that names none: none, public, all, or host:port,host:port";
    "sandbox.show" = "" => sandbox.show,
        "directories of this machine that sandboxes see read-only beside /usr, separated by commas";
    "sandbox.warm" = "1" => sandbox.warm,
        "sandboxes of a kind that are kept ready for the next thread; 0 keeps none";
    "sandbox.reserve_cpus" = "1" => sandbox.reserve_cpus,
        "processors kept free of sandboxes that compute for long, but never all; 0 keeps none";
    "sandbox.disk_rate" = "64MiB" => sandbox.disk_rate,
        "bytes a second that a sandbox may write to its disk; 0 is no bound";
    "docker.host" = "auto" => docker.host,
        "socket of the container engine (unix:///…); auto: DOCKER_HOST, else Docker's, else Podman's";
    "docker.image" = "auto" => docker.image,
        "image of a container that names none, imported or of a registry; auto: this machine's programs";
    "e2b.key" = "" => e2b.key,
        "what opens E2B; without it there is no provider e2b (also read from E2B_API_KEY)";
    "e2b.endpoint" = "auto" => e2b.endpoint,
        "control plane of E2B, or of somebody who speaks like it; auto: E2B's own";
    "e2b.sandbox_url" = "auto" => e2b.sandbox_url,
        "one address for the daemons of all sandboxes; auto: E2B's own, or the endpoint that is set";
    "e2b.template" = "base" => e2b.template,
        "template of a sandbox of E2B that names none";
    "e2b.timeout" = "15m" => e2b.timeout,
        "a sandbox of E2B is paused so long after this server was last heard of";
    "e2b.price_per_hour" = "0" => e2b.price,
        "what an hour of a sandbox of E2B costs, for max_cost and the cost of a lease";
    "e2b.directory" = "/tmp" => e2b.directory,
        "directory inside a sandbox of E2B below which the host keeps its files";
    "e2b.runtime" = "host" => e2b.runtime,
        "what terminals in a sandbox of E2B stand on: host (ours, inside), or remote (commands alone, no PTY)";
    "daytona.key" = "" => daytona.key,
        "what opens Daytona; without it there is no provider daytona (also read from DAYTONA_API_KEY)";
    "daytona.endpoint" = "auto" => daytona.endpoint,
        "control plane of Daytona, or of somebody who speaks like it; auto: Daytona's own";
    "daytona.snapshot" = "auto" => daytona.snapshot,
        "snapshot of a sandbox of Daytona that names none; auto: Daytona's own choice";
    "daytona.auto_stop" = "15m" => daytona.auto_stop,
        "a sandbox of Daytona is stopped so long after this server was last heard of; whole minutes";
    "daytona.price_per_hour" = "0" => daytona.price,
        "what an hour of a sandbox of Daytona costs, for max_cost and the cost of a lease";
    "daytona.directory" = "/tmp" => daytona.directory,
        "directory inside a sandbox of Daytona below which the host keeps its files";
    "daytona.runtime" = "host" => daytona.runtime,
        "what terminals in a sandbox of Daytona stand on: host (ours, inside), or remote (commands alone, no PTY)";
    "agentbay.key" = "" => agentbay.key,
        "what opens AgentBay; without it there is no provider agentbay (also read from AGENTBAY_API_KEY)";
    "agentbay.endpoint" = "auto" => agentbay.endpoint,
        "API of AgentBay, or of somebody who speaks like it; auto: AgentBay's own in cn-hangzhou";
    "agentbay.image" = "linux_latest" => agentbay.image,
        "image of a session of AgentBay that names none";
    "agentbay.timeout" = "15m" => agentbay.timeout,
        "AgentBay may end a session so long after this server was last heard of";
    "agentbay.price_per_hour" = "0" => agentbay.price,
        "what an hour of a session of AgentBay costs, for max_cost and the cost of a lease";
    "agentbay.directory" = "/tmp" => agentbay.directory,
        "directory inside a session of AgentBay below which we keep our files";
    "max_projects" = "1000" => project.max_projects,
        "projects the server may have";
    "project.cleanup_enabled" = "true" => project.cleanup_enabled,
        "delete projects nobody uses";
    "project.cleanup_after_days" = "30" => project.cleanup_after_days,
        "days without use; a project is deleted on the day after";
    "project.cleanup_warning_days" = "3" => project.cleanup_warning_days,
        "how many of the last days bring a warning";
    "project.cleanup_check_interval" = "24h" => project.cleanup_check_interval,
        "time between two looks at all projects; the first is at the start";
    "project.trash_time" = "7d" => project.trash_time,
        "how long a deleted project can be restored";
    "project.import_bytes" = "32GiB" => project.import_bytes,
        "largest project that is imported, unpacked";
    "project.stop_on_disconnect" = "false" => project.stop_on_disconnect,
        "stop the instances of a project when its last client leaves; a project may say otherwise";
    "project.recreate_on_reconnect" = "true" => project.recreate_on_reconnect,
        "make a stopped instance again for a client that comes back; a project may say otherwise";
    "project.disconnect_grace" = "10s" => project.disconnect_grace,
        "how long the last client may be away before anything is stopped";
    "project.routes" = "/workspace=filesystem,/memories/hot=state,/memories/persistent=filesystem"
        => project.routes,
        "backends of the file tree by prefix: filesystem (disk), state (memory) or store (database); \
         a project may choose others";
    "memory.snapshot_interval" = "5m" => memory.snapshot_interval,
        "time between two snapshots of the hot memories";
    "memory.max_entries" = "10000" => memory.max_entries,
        "hot memories one project may have";
    "memory.max_bytes" = "64MiB" => memory.max_bytes,
        "bytes of hot memories one project may have";
    "memory.max_entry_bytes" = "4MiB" => memory.max_entry_bytes,
        "largest hot memory";
    "history.versions" = "1000" => history.versions,
        "state versions kept of each terminal";
    "history.age" = "30d" => history.age,
        "age at which a state version may go";
}

/// Settings before any row was put in.
pub(super) fn blank() -> Settings {
    Settings {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        home: PathBuf::new(),
        no_auth: false,
        names: Vec::new(),
        tls: TlsFiles::default(),
        behind_proxy: false,
        provider: String::new(),
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
            show: Vec::new(),
            warm: 0,
            reserve_cpus: 0,
            disk_rate: 0,
        },
        docker: Containers { host: String::new(), image: String::new() },
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
