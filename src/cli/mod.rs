//! The command line. Everything but `serve` and `config` talks to the server over HTTP only.

mod config;

use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::{config::Said, server};

/// Durable terminals for agents and people.
#[derive(Debug, Parser)]
#[command(name = "stead", version, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the server
    #[command(
        after_help = "Examples:\n  stead serve\n  stead serve --listen 127.0.0.1:0 --home /tmp/x"
    )]
    Serve(ServeArgs),
    /// Show every setting, its value and where it came from
    Config(config::ConfigArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  stead completions bash > /etc/bash_completion.d/stead")]
    Completions {
        /// The shell to complete in
        shell: clap_complete::Shell,
    },
}

/// What `serve` and `config` can set.
#[derive(Debug, Args)]
struct SettingArgs {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Directory of everything the server keeps
    #[arg(long, value_name = "DIR")]
    home: Option<String>,
    /// Let anyone who can reach the (loopback) address in
    #[arg(long)]
    no_auth: bool,
    /// Provider of a thread that names none
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Log as text or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Least important log line written
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Settings file (default HOME/stead.toml)
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    /// Any setting by its name, as in --set terminal.scrollback=1000
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl SettingArgs {
    fn said(&self) -> anyhow::Result<Said> {
        let mut said = Said::environment();
        said.file = self.config.clone();
        let named = [
            ("listen", &self.listen, "--listen"),
            ("home", &self.home, "--home"),
            ("provider", &self.provider, "--provider"),
            ("log_format", &self.log_format, "--log-format"),
            ("log_level", &self.log_level, "--log-level"),
        ];
        for pair in &self.set {
            let Some((key, value)) = pair.split_once('=') else {
                anyhow::bail!("--set {pair:?}: expected KEY=VALUE");
            };
            said.flag(key.trim(), value, "--set");
        }
        for (key, value, flag) in named {
            if let Some(value) = value {
                said.flag(key, value, flag);
            }
        }
        if self.no_auth {
            said.flag("no_auth", "true", "--no-auth");
        }
        Ok(said)
    }
}

#[derive(Debug, Args)]
struct ServeArgs {
    #[command(flatten)]
    settings: SettingArgs,
}

/// Runs the command line and says how it ended.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.verb) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("stead: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Serve(args) => serve(&args),
        Verb::Config(args) => config::run(&args),
        Verb::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "stead", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn serve(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let settings = crate::config::load(&args.settings.said()?)?.settings;
    server::start_log(settings.log_format, settings.log_level);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(server::run(settings));
    // What is left is cut: the drain inside `run` had its time.
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}
