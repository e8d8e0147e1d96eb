//! Settings as options of `serve`, `config`, `doctor` and `image`.

use clap::Args;
use config::ConfigSources;

/// The settings that can be given as options.
#[derive(Debug, Args)]
pub(super) struct SettingArgs {
    /// Address to listen on; port 0 picks a free port
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Directory of the server's data
    #[arg(long, value_name = "DIR")]
    home: Option<String>,
    /// Disable authentication; allowed on loopback addresses only
    #[arg(long)]
    no_auth: bool,
    /// PEM file with the TLS certificate chain; reloaded when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<String>,
    /// PEM file with the private key of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<String>,
    /// Allow plain HTTP on any address, because a reverse proxy terminates TLS
    #[arg(long)]
    behind_proxy: bool,
    /// URL of a PostgreSQL database for the rows (default: a file in the home)
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Default provider
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Log format: text or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Minimum log level
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Settings file (default: HOME/stead.toml)
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    /// Set any setting by its name, such as terminal.scrollback=1000
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl SettingArgs {
    /// Returns the settings of the environment, the options and `--config`.
    pub(super) fn given(&self) -> anyhow::Result<ConfigSources> {
        let mut given = ConfigSources::environment();
        given.file = self.config.clone();
        let named = [
            ("listen", &self.listen, "--listen"),
            ("home", &self.home, "--home"),
            ("tls.cert", &self.tls_cert, "--tls-cert"),
            ("tls.key", &self.tls_key, "--tls-key"),
            ("store.url", &self.store, "--store"),
            ("provider", &self.provider, "--provider"),
            ("log_format", &self.log_format, "--log-format"),
            ("log_level", &self.log_level, "--log-level"),
        ];
        for pair in &self.set {
            let Some((key, value)) = pair.split_once('=') else {
                anyhow::bail!("--set {pair:?}: expected KEY=VALUE");
            };
            given.flag(key.trim(), value, "--set");
        }
        for (key, value, flag) in named {
            if let Some(value) = value {
                given.flag(key, value, flag);
            }
        }
        if self.no_auth {
            given.flag("no_auth", "true", "--no-auth");
        }
        if self.behind_proxy {
            given.flag("behind_proxy", "true", "--behind-proxy");
        }
        Ok(given)
    }
}
