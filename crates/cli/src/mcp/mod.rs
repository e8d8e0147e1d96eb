//! `stead mcp`: an MCP server on standard input and output, and its installation in clients.

mod args;
mod bridge;
mod entries;
mod install;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use args::BridgeArgs;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  stead mcp install claude         add Stead to Claude Code\n  \
        stead mcp install codex --print  print the entry for Codex\n  \
        stead mcp --thread build         serve MCP; tools use the thread `build` by default\n\n\
        Messages are lines of JSON. A server is started if none runs in the home directory, and\n\
        found again if it was restarted; commands continue in between."
)]
pub(super) struct McpArgs {
    #[command(subcommand)]
    verb: Option<McpVerb>,
    #[command(flatten)]
    bridge: BridgeArgs,
}

#[derive(Debug, Subcommand)]
enum McpVerb {
    /// Add Stead to the configuration of an MCP client
    #[command(
        after_help = "Examples:\n  stead mcp install claude\n  stead mcp install vscode --print\n\n\
        Other entries of the file are kept as they are. --thread, --url and --home become part of\n\
        the entry."
    )]
    Install(install::InstallArgs),
}

pub(super) async fn run(args: McpArgs) -> anyhow::Result<ExitCode> {
    match args.verb {
        Some(McpVerb::Install(args)) => install::run(&args),
        None => bridge::run(args.bridge).await,
    }
}
