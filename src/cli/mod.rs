//! The command line. Everything but `serve`, `config` and `screen` talks to the server over HTTP only.

mod attach;
mod client;
mod config;
mod env;
mod events;
mod exec;
mod keys;
mod machine;
mod memory;
mod names;
mod projects;
mod raw;
mod screen;
mod share;
mod show;
mod terminals;
mod threads;
mod trust;

use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::server;
use ::config::ConfigSources;

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
        after_help = "Examples:\n  stead serve\n  stead serve --listen 127.0.0.1:0 --home /tmp/x\n  \
            stead serve --listen 0.0.0.0:443 --tls-cert fullchain.pem --tls-key privkey.pem"
    )]
    Serve(ServeArgs),
    /// Make a terminal and attach to it
    New(terminals::NewArgs),
    /// Attach to a terminal
    Attach(attach::AttachArgs),
    /// List terminals
    Ls(terminals::LsArgs),
    /// Run a command in a terminal's shell
    Exec(exec::ExecArgs),
    /// List the commands a terminal ran
    History(exec::HistoryArgs),
    /// Print the output of a command
    Output(exec::OutputArgs),
    /// Type into a terminal
    Send(terminals::SendArgs),
    /// Print what a terminal shows
    Snapshot(terminals::SnapshotArgs),
    /// Print what a terminal wrote
    Logs(terminals::LogsArgs),
    /// Give a terminal another size
    Resize(terminals::ResizeArgs),
    /// End a terminal, or signal its program
    Kill(terminals::KillArgs),
    /// Write a terminal's recording (asciicast)
    Record(terminals::RecordArgs),
    /// List the versions of a terminal's state
    Versions(terminals::VersionsArgs),
    /// Bring an earlier state of a terminal back
    Rollback(terminals::RollbackArgs),
    /// Make a terminal that begins with the state of another
    Fork(terminals::ForkArgs),
    /// Freeze the compute of a thread
    Pause(threads::OfThread),
    /// Let it go on
    Resume(threads::OfThread),
    /// Threads: ls, show, create, rm, messages, say
    #[command(subcommand)]
    Threads(threads::ThreadsVerb),
    /// Sessions: show, touch, close
    #[command(subcommand)]
    Sessions(threads::SessionsVerb),
    /// Terminals: ls, show, env, rm
    #[command(subcommand)]
    Terminals(terminals::TerminalsVerb),
    /// Leases: ls, show, pause, resume, destroy
    #[command(subcommand)]
    Leases(threads::LeasesVerb),
    /// Projects: create, ls, show, set, sessions, pin, extend, rm, restore, export, import, cleanup
    #[command(subcommand)]
    Project(projects::ProjectVerb),
    /// Memories of a project: get, put, ls, rm
    #[command(subcommand)]
    Memory(memory::MemoryVerb),
    /// Links that show one terminal, read-only: create, ls, revoke
    #[command(subcommand)]
    Share(share::ShareVerb),
    /// List providers and what each can do
    Providers(threads::Plain),
    /// Show how the server is
    Status(threads::Plain),
    /// Print a link that signs a browser in, once
    Login(threads::Plain),
    /// Print what a client of E2B, Daytona or MCP needs to use this server
    Env(env::EnvArgs),
    /// Show every setting, its value and where it came from
    Config(config::ConfigArgs),
    /// Print what a terminal would show after the bytes on standard input
    Screen(screen::ScreenArgs),
    /// Say what this machine can give sandboxes, and how to get what is missing
    Doctor(machine::DoctorArgs),
    /// Root file systems that sandboxes are made from
    #[command(subcommand)]
    Image(machine::ImageVerb),
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
    /// PEM file with the certificate chain for TLS; read again when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<String>,
    /// PEM file with the private key of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<String>,
    /// Allow plain HTTP on any address: a proxy in front of the server terminates TLS
    #[arg(long)]
    behind_proxy: bool,
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
    fn said(&self) -> anyhow::Result<ConfigSources> {
        let mut said = ConfigSources::environment();
        said.file = self.config.clone();
        let named = [
            ("listen", &self.listen, "--listen"),
            ("home", &self.home, "--home"),
            ("tls.cert", &self.tls_cert, "--tls-cert"),
            ("tls.key", &self.tls_key, "--tls-key"),
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
        if self.behind_proxy {
            said.flag("behind_proxy", "true", "--behind-proxy");
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
        Verb::Env(args) => env::run(&args),
        Verb::Screen(args) => screen::run(&args),
        Verb::Doctor(args) => machine::doctor(&args),
        Verb::Image(verb) => machine::image(&verb),
        Verb::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "stead", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        remote => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let ended = runtime.block_on(ask(remote));
            // A thread may be reading the terminal still; nothing waits for it.
            runtime.shutdown_background();
            ended
        }
    }
}

/// The verbs that talk to a server.
async fn ask(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::New(args) => terminals::new(args).await,
        Verb::Attach(args) => attach::run(args).await,
        Verb::Ls(args) => terminals::ls(args).await,
        Verb::Exec(args) => exec::run(args).await,
        Verb::History(args) => exec::history(args).await,
        Verb::Output(args) => exec::output(args).await,
        Verb::Send(args) => terminals::send(args).await,
        Verb::Snapshot(args) => terminals::snapshot(args).await,
        Verb::Logs(args) => terminals::logs(args).await,
        Verb::Resize(args) => terminals::resize(args).await,
        Verb::Kill(args) => terminals::kill(args).await,
        Verb::Record(args) => terminals::record(args).await,
        Verb::Versions(args) => terminals::versions(args).await,
        Verb::Rollback(args) => terminals::rollback(args).await,
        Verb::Fork(args) => terminals::fork(args).await,
        Verb::Pause(args) => threads::pause(args).await,
        Verb::Resume(args) => threads::resume(args).await,
        Verb::Threads(verb) => threads::threads(verb).await,
        Verb::Sessions(verb) => threads::sessions(verb).await,
        Verb::Terminals(verb) => terminals::terminals(verb).await,
        Verb::Leases(verb) => threads::leases(verb).await,
        Verb::Project(verb) => projects::project(verb).await,
        Verb::Memory(verb) => memory::memory(verb).await,
        Verb::Share(verb) => share::share(verb).await,
        Verb::Providers(args) => threads::providers(args).await,
        Verb::Status(args) => threads::status(args).await,
        Verb::Login(args) => threads::login(args).await,
        Verb::Serve(_)
        | Verb::Config(_)
        | Verb::Env(_)
        | Verb::Doctor(_)
        | Verb::Image(_)
        | Verb::Screen(_)
        | Verb::Completions { .. } => {
            unreachable!("these need no server")
        }
    }
}

fn serve(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let settings = ::config::load(&args.settings.said()?)?.settings;
    server::start_log(settings.log_format, settings.log_level);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(server::run(settings));
    // What is left is cut: the drain inside `run` had its time.
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}
