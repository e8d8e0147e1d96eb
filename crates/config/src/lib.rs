//! Every setting of the server, and the origin of its value.
//!
//! A flag overrides the environment, the environment overrides `stead.toml`, and the file overrides the
//! default. All four are text and go through one parser per type, so a value means the same in each
//! source. The table in `table.rs` is the only list of settings; `stead config` prints it.

mod address;
mod settings;
mod table;
mod value;

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::Serialize;

pub use address::Scheme;
pub use settings::{
    AgentBay, Containers, Daytona, E2b, History, Memories, Policy, ProjectLimits, PulledImages,
    RequestLimits, SandboxDefaults, Settings, TerminalLimits, TlsFiles, VolumeDefaults,
};
pub use value::{
    LogFormat, LogLevel, RouteBackend, Secret, SessionExpiryAction, VendorRuntime, parse_duration,
};

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "from", content = "name", rename_all = "lowercase")]
pub enum Origin {
    Default,
    /// The settings file at this path.
    File(PathBuf),
    /// This environment variable.
    Environment(String),
    /// This command line flag.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => write!(f, "default"),
            Origin::File(path) => write!(f, "file {}", path.display()),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// One line of `stead config`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingView {
    /// Dotted name, as in `stead.toml`.
    pub key: &'static str,
    /// Value in effect, as it was written.
    pub value: String,
    pub origin: Origin,
    /// The environment variable for this setting.
    pub environment: String,
    pub doc: &'static str,
}

/// Why the settings are invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value cannot be parsed.
    #[error("{key} = {value:?} ({origin}): {reason}")]
    Value { key: &'static str, value: String, origin: Origin, reason: String },
    #[error("unknown setting {key:?} ({origin}); `stead config` lists all of them")]
    Unknown { key: String, origin: Origin },
    /// The file exists but cannot be read, or was named and does not exist.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{} is not valid TOML: {reason}", path.display())]
    Toml {
        path: PathBuf,
        /// The parser's message, with line and column.
        reason: String,
    },
    /// Authentication is off on an address that other machines can reach.
    #[error("no_auth is refused on {0}: without a token only a loopback address is allowed")]
    OpenToAll(SocketAddr),
    /// Fixtures of a test suite on an address that other machines can reach.
    #[error("mcp.fixtures is refused on {0}: it is for tests, on a loopback address")]
    FixturesOpenToAll(SocketAddr),
    /// A token or a session cookie would cross the network in clear text.
    #[error(
        "listening on {0} without TLS is refused: tokens would cross the network in clear text; \
         use --tls-cert FILE --tls-key FILE, or --behind-proxy if a proxy in front terminates TLS"
    )]
    PlainText(SocketAddr),
    /// Only one of certificate and key is set.
    #[error("tls.cert and tls.key belong together: set both or neither")]
    IncompleteTls,
    /// The webhook is not a URL.
    #[error("notify.webhook must begin with http:// or https://")]
    WebhookUrl,
    /// The receiver of traces is not a URL.
    #[error("telemetry.otlp_endpoint must begin with http:// or https://")]
    TelemetryUrl,
    /// Requests to the webhook could be forged.
    #[error(
        "notify.webhook needs notify.secret, the key of its signatures; set it in the environment as STEAD_NOTIFY_SECRET"
    )]
    UnsignedWebhook,
    /// `HOME` is not set, so there is no default for the server's directory.
    #[error("no home directory: set HOME, or --home, or STEAD_HOME")]
    NoHome,
}

/// The sources of settings other than the file.
#[derive(Debug, Default, Clone)]
pub struct ConfigSources {
    /// Key, value and flag, such as `listen`, `127.0.0.1:80` and `--listen`.
    pub flags: Vec<(String, String, String)>,
    pub environment: BTreeMap<String, String>,
    /// Settings file named by the caller.
    pub file: Option<PathBuf>,
}

impl ConfigSources {
    /// Reads the process environment, without flags.
    pub fn environment() -> ConfigSources {
        // Skips variables that are not UTF-8: none of ours is.
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        ConfigSources { environment, ..ConfigSources::default() }
    }

    pub fn flag(&mut self, key: &str, value: impl Into<String>, flag: &str) {
        self.flags.push((key.to_owned(), value.into(), flag.to_owned()));
    }
}

/// Settings with their origins.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub settings: Settings,
    /// Every setting with its origin, in the order of the table.
    pub shown: Vec<SettingView>,
}

/// Merges the settings of all four sources.
pub fn load(sources: &ConfigSources) -> Result<Loaded, ConfigError> {
    let mut chosen: BTreeMap<&'static str, (String, Origin)> = table::SETTINGS
        .iter()
        .map(|setting| (setting.key, (setting.default.to_owned(), Origin::Default)))
        .collect();

    if let Some(home) = default_home(&sources.environment) {
        chosen.insert("home", (home.display().to_string(), Origin::Default));
    }
    // The variables that the vendors' own programs and other standards read.
    for (key, name) in table::KEYS.iter().chain(table::STANDARD_VARIABLES) {
        if let Some(value) = sources.environment.get(*name) {
            chosen.insert(key, (value.clone(), Origin::Environment((*name).to_owned())));
        }
    }
    // The file may be in the home directory, so the home is resolved first.
    let mut outer: Vec<(&'static str, String, Origin)> = Vec::new();
    for setting in table::SETTINGS {
        let name = variable(setting.key);
        if let Some(value) = sources.environment.get(&name) {
            outer.push((setting.key, value.clone(), Origin::Environment(name)));
        }
    }
    for (key, value, flag) in &sources.flags {
        let origin = Origin::Flag(flag.clone());
        let setting = table::find(key)
            .ok_or_else(|| ConfigError::Unknown { key: key.clone(), origin: origin.clone() })?;
        outer.push((setting.key, value.clone(), origin));
    }
    let home = outer.iter().rev().find(|(key, ..)| *key == "home").map(|(_, value, _)| value);
    let home = home.or(chosen.get("home").map(|(value, _)| value)).filter(|home| !home.is_empty());
    let named =
        sources.file.clone().or_else(|| sources.environment.get("STEAD_CONFIG").map(Into::into));
    let file = match (&named, home) {
        (Some(path), _) => Some(path.clone()),
        (None, Some(home)) => Some(Path::new(home).join("stead.toml")),
        (None, None) => None,
    };
    if let Some(path) = file {
        for (key, value) in read_file(&path, named.is_some())? {
            let origin = Origin::File(path.clone());
            let setting =
                table::find(&key).ok_or(ConfigError::Unknown { key, origin: origin.clone() })?;
            chosen.insert(setting.key, (value, origin));
        }
    }
    for (key, value, origin) in outer {
        chosen.insert(key, (value, origin));
    }

    let mut settings = table::blank();
    let mut shown = Vec::with_capacity(table::SETTINGS.len());
    for setting in table::SETTINGS {
        let (value, origin) = chosen.remove(setting.key).expect("every key of the table is chosen");
        if setting.key == "home" && value.is_empty() {
            return Err(ConfigError::NoHome);
        }
        (setting.put)(&mut settings, &value).map_err(|reason| ConfigError::Value {
            key: setting.key,
            value: value.clone(),
            origin: origin.clone(),
            reason,
        })?;
        let environment = variable(setting.key);
        let secret = table::KEYS.iter().any(|(key, _)| *key == setting.key)
            || table::OWN_SECRETS.contains(&setting.key);
        let value = if secret && !value.is_empty() { "(set)".to_owned() } else { value };
        shown.push(SettingView { key: setting.key, value, origin, environment, doc: setting.doc });
    }
    if settings.no_auth && !settings.listen.ip().is_loopback() {
        return Err(ConfigError::OpenToAll(settings.listen));
    }
    if settings.mcp_fixtures && !settings.listen.ip().is_loopback() {
        return Err(ConfigError::FixturesOpenToAll(settings.listen));
    }
    if settings.tls.cert.is_some() != settings.tls.key.is_some() {
        return Err(ConfigError::IncompleteTls);
    }
    if let Some(webhook) = &settings.notify.webhook {
        if !["http://", "https://"].iter().any(|scheme| webhook.starts_with(scheme)) {
            return Err(ConfigError::WebhookUrl);
        }
        if settings.notify.secret.reveal().is_empty() {
            return Err(ConfigError::UnsignedWebhook);
        }
    }
    if let Some(receiver) = &settings.telemetry.otlp_endpoint
        && !["http://", "https://"].iter().any(|scheme| receiver.starts_with(scheme))
    {
        return Err(ConfigError::TelemetryUrl);
    }
    let encrypted = settings.scheme() == Scheme::Https || settings.behind_proxy;
    if !encrypted && !settings.listen.ip().is_loopback() {
        return Err(ConfigError::PlainText(settings.listen));
    }
    Ok(Loaded { settings, shown })
}

/// Returns the environment variable of a setting: `STEAD_TERMINAL_MAX` for `terminal.max`.
fn variable(key: &str) -> String {
    format!("STEAD_{}", key.replace('.', "_").to_ascii_uppercase())
}

fn default_home(environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    let home = environment.get("HOME").filter(|home| !home.is_empty())?;
    Some(Path::new(home).join(".stead"))
}

fn read_file(path: &Path, must_exist: bool) -> Result<Vec<(String, String)>, ConfigError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !must_exist => {
            return Ok(Vec::new());
        }
        Err(source) => return Err(ConfigError::Read { path: path.to_owned(), source }),
    };
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| ConfigError::Toml {
        path: path.to_owned(),
        reason: error.to_string().trim().to_owned(),
    })?;
    let mut flat = Vec::new();
    flatten("", &table, &mut flat);
    Ok(flat)
}

fn flatten(prefix: &str, table: &toml::Table, flat: &mut Vec<(String, String)>) {
    for (name, value) in table {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            toml::Value::Table(inner) => flatten(&key, inner, flat),
            toml::Value::Array(items) => {
                let items: Vec<String> = items.iter().map(scalar).collect();
                flat.push((key, items.join(",")));
            }
            other => flat.push((key, scalar(other))),
        }
    }
}

fn scalar(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
