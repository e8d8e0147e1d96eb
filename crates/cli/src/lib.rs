//! The command line. Every command that needs a server is a client of its HTTP API like any other.

mod acp;
mod alt_screen;
mod attach;
mod client;
mod config;
mod copy;
mod dockerignore;
mod download;
mod env;
mod events;
mod exec;
mod handoffs;
mod image_build;
mod images;
mod keys;
mod list;
mod machine;
mod mcp;
mod memory;
mod names;
mod progress;
mod projects;
mod raw;
mod reconnect;
mod repository;
mod sandboxes;
mod screen;
mod search;
mod server_link;
mod settings;
mod share;
mod show;
mod sse;
mod terminals;
mod threads;
mod top;
mod trust;
mod upgrade;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::{Args, CommandFactory, Parser, Subcommand};

use server::Assets;
use settings::SettingArgs;

/// Durable terminals and sandboxes for AI agents and people
#[derive(Debug, Parser)]
#[command(
    name = "stead",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Examples:\n  stead serve                          start the server\n  \
        stead exec -- make test              run a command in the thread `main`\n  \
        stead attach                         attach to its terminal\n  \
        stead thread ls --json               list threads\n\n\
        Nouns may be given in the plural (`stead threads ls`), and ids by a unique prefix. Everywhere, `-t`\n\
        takes a thread, the name or id of a sandbox, or a terminal id.\n\n\
        Exit status: 0 success, 1 failure, 2 wrong usage. `stead exec` exits with the status of the\n\
        command (126 if it cannot be executed, 127 if it was not found), 124 if it timed out, 125 if\n\
        there is no result; `stead attach` and `stead new` with the status of the program, or 125."
)]
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
    /// Create a terminal and attach to it
    New(terminals::NewArgs),
    /// Attach to a terminal
    Attach(attach::AttachArgs),
    /// List terminals
    Ls(terminals::LsArgs),
    /// Run a command in a terminal's shell
    Exec(exec::ExecArgs),
    /// List the commands of a terminal
    History(exec::HistoryArgs),
    /// Print the output of a command
    Output(exec::OutputArgs),
    /// Find a text in the commands and the output of all threads
    Search(search::SearchArgs),
    /// Show what runs and what it uses, live
    Top(top::TopArgs),
    /// Wait for the end of a command, and exit with its status
    Wait(events::WaitArgs),
    /// Copy files and directories to or from a thread or sandbox
    Cp(copy::CopyArgs),
    /// List the TCP ports that programs of a thread listen on, or link to one
    #[command(
        after_help = "Examples:\n  stead ports build\n  stead ports build --link 8000 --for 1h"
    )]
    Ports(threads::PortsArgs),
    /// Send input to a terminal
    Send(terminals::SendArgs),
    /// Print the screen of a terminal
    Snapshot(terminals::SnapshotArgs),
    /// Print the output of a terminal
    Logs(terminals::LogsArgs),
    /// Resize a terminal
    Resize(terminals::ResizeArgs),
    /// Close a terminal, or send a signal to its program
    Kill(terminals::KillArgs),
    /// Export the recording of a terminal (asciicast)
    Record(terminals::RecordArgs),
    /// List the versions of a terminal's state
    Versions(terminals::VersionsArgs),
    /// Restore an earlier state of a terminal
    Rollback(terminals::RollbackArgs),
    /// Create a terminal with the state of another
    Fork(terminals::ForkArgs),
    /// Pause the sandbox of a thread
    #[command(after_help = "Example:\n  stead pause build")]
    Pause(threads::ThreadArgs),
    /// Resume a paused thread
    #[command(after_help = "Example:\n  stead resume build")]
    Resume(threads::ThreadArgs),
    /// Manage threads
    #[command(
        subcommand,
        alias = "threads",
        after_help = "Examples:\n  stead thread create build --idle 1h\n  stead thread ls --watch"
    )]
    Thread(threads::ThreadVerb),
    /// Manage sandboxes: compute with a name, labels and a lifetime
    #[command(
        subcommand,
        alias = "sandboxes",
        after_help = "Examples:\n  stead sandbox create demo --memory 1g\n  stead sandbox ls --json"
    )]
    Sandbox(sandboxes::SandboxVerb),
    /// Manage the session of a thread
    #[command(
        subcommand,
        alias = "sessions",
        after_help = "Examples:\n  stead session ls --status active\n  stead session touch build"
    )]
    Session(threads::SessionVerb),
    /// Manage terminals
    #[command(
        subcommand,
        alias = "terminals",
        after_help = "Examples:\n  stead terminal ls --quiet\n  stead terminal show term_0198…"
    )]
    Terminal(terminals::TerminalVerb),
    /// Manage leases, which claim sandboxes for threads
    #[command(
        subcommand,
        alias = "leases",
        after_help = "Examples:\n  stead lease ls --json\n  stead lease pause lease_0198…"
    )]
    Lease(threads::LeaseVerb),
    /// Manage projects
    #[command(
        subcommand,
        alias = "projects",
        after_help = "Examples:\n  stead project create my-api --tag work\n  stead project ls"
    )]
    Project(projects::ProjectVerb),
    /// Read and write the memories of a project
    #[command(
        subcommand,
        alias = "memories",
        after_help = "Examples:\n  stead memory put notes/today 'ship it'\n  stead memory get notes/today"
    )]
    Memory(memory::MemoryVerb),
    /// Answer the requests of agents to people
    #[command(
        subcommand,
        alias = "handoffs",
        after_help = "Examples:\n  stead handoff ls --watch\n  stead handoff ask --help"
    )]
    Handoff(handoffs::HandoffVerb),
    /// Share a terminal by a read-only link
    #[command(
        subcommand,
        alias = "shares",
        after_help = "Examples:\n  stead share create main --for 2h\n  stead share ls"
    )]
    Share(share::ShareVerb),
    /// List providers and their capabilities
    #[command(alias = "provider", after_help = "Example:\n  stead providers --json")]
    Providers(threads::PlainListArgs),
    /// Print the events of the server as they happen
    Events(events::EventsArgs),
    /// Show server status
    #[command(after_help = "Example:\n  stead status --json")]
    Status(threads::PlainArgs),
    /// Print a one-time link that signs a browser in
    #[command(after_help = "Example:\n  xdg-open \"$(stead login)\"")]
    Login(threads::PlainArgs),
    /// Print the configuration for clients of E2B, Daytona or MCP
    Env(env::EnvArgs),
    /// Serve MCP on standard input and output, or install it in a client
    Mcp(Box<mcp::McpArgs>),
    /// Serve the terminals of the Agent Client Protocol on standard input and output
    Acp(acp::AcpArgs),
    /// Show all settings, their values and where they were set
    Config(config::ConfigArgs),
    /// Render the terminal output on standard input
    Screen(screen::ScreenArgs),
    /// Check whether this machine can run sandboxes, and how to fix what is missing
    Doctor(machine::DoctorArgs),
    /// Check whether this version can take over a home directory
    Upgrade(upgrade::UpgradeArgs),
    /// Manage the images (root file systems) of sandboxes
    #[command(
        subcommand,
        alias = "images",
        after_help = "Examples:\n  stead image pull python:3.13-slim\n  stead image ls"
    )]
    Image(images::ImageVerb),
    /// Write the manual pages into a directory
    #[command(after_help = "Example:\n  stead man /usr/local/share/man/man1")]
    Man {
        /// The directory, which exists
        directory: PathBuf,
    },
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  stead completions bash > /etc/bash_completion.d/stead")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
struct ServeArgs {
    #[command(flatten)]
    settings: SettingArgs,
}

/// Runs the command line; `assets` is the web app that the server serves.
pub fn main(assets: Assets) -> ExitCode {
    let cli = Cli::parse();
    match run(cli.verb, assets) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("stead: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb, assets: Assets) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Serve(args) => serve(&args, assets),
        Verb::Config(args) => config::run(&args),
        Verb::Env(args) => env::run(&args),
        Verb::Screen(args) => screen::run(&args),
        Verb::Doctor(args) => machine::doctor(&args),
        Verb::Image(verb) => images::run(&verb),
        Verb::Upgrade(args) => upgrade::run(&args),
        Verb::Man { directory } => {
            clap_mangen::generate_to(Cli::command(), &directory)
                .with_context(|| format!("cannot write manual pages to {}", directory.display()))?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "stead", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        remote => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let ended = runtime.block_on(ask(remote));
            // A thread may still be blocked in a read of standard input; do not wait for it.
            runtime.shutdown_background();
            ended
        }
    }
}

/// Runs the commands that are clients of a server.
async fn ask(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::New(args) => terminals::new(args).await,
        Verb::Attach(args) => attach::run(args).await,
        Verb::Ls(args) => terminals::ls(args).await,
        Verb::Exec(args) => exec::run(args).await,
        Verb::History(args) => exec::history(args).await,
        Verb::Output(args) => exec::output(args).await,
        Verb::Search(args) => search::search(args).await,
        Verb::Top(args) => top::top(args).await,
        Verb::Wait(args) => events::wait(args).await,
        Verb::Cp(args) => copy::cp(args).await,
        Verb::Ports(args) => threads::ports(args).await,
        Verb::Events(args) => events::events(args).await,
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
        Verb::Thread(verb) => threads::threads(verb).await,
        Verb::Sandbox(verb) => sandboxes::sandboxes(verb).await,
        Verb::Session(verb) => threads::sessions(verb).await,
        Verb::Terminal(verb) => terminals::terminals(verb).await,
        Verb::Lease(verb) => threads::leases(verb).await,
        Verb::Project(verb) => projects::project(verb).await,
        Verb::Memory(verb) => memory::memory(verb).await,
        Verb::Handoff(verb) => handoffs::handoffs(verb).await,
        Verb::Share(verb) => share::share(verb).await,
        Verb::Mcp(args) => mcp::run(*args).await,
        Verb::Acp(args) => acp::run(args).await,
        Verb::Providers(args) => threads::providers(args).await,
        Verb::Status(args) => threads::status(args).await,
        Verb::Login(args) => threads::login(args).await,
        Verb::Serve(_)
        | Verb::Config(_)
        | Verb::Env(_)
        | Verb::Doctor(_)
        | Verb::Image(_)
        | Verb::Upgrade(_)
        | Verb::Screen(_)
        | Verb::Man { .. }
        | Verb::Completions { .. } => {
            unreachable!("these need no server")
        }
    }
}

fn serve(args: &ServeArgs, assets: Assets) -> anyhow::Result<ExitCode> {
    let settings = ::config::load(&args.settings.given()?)?.settings;
    let spans = server::start_log(&settings);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(server::run(settings, assets, spans));
    // `run` has already drained; remaining tasks are aborted.
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}
