//! `stead acp`: the terminals of the Agent Client Protocol, version 1, on standard input and output.
//!
//! ```text
//!   agent ⇄ stead acp               answers terminal/…, refuses everything else
//!   editor ⇄ stead acp ⇄ agent      with the command of an agent: passes everything but terminal/…
//! ```
//! Messages are lines of JSON-RPC. A terminal is a command of the server, and its id is the id of the command: it
//! survives this process, the agent and the server.

mod proxy;
mod rpc;
mod terminals;

use std::{process::ExitCode, sync::Arc};

use anyhow::Context;
use clap::Args;
use tokio::io::{AsyncBufReadExt, BufReader, stdin, stdout};
use tokio::task::JoinSet;

use super::{client::ServerArgs, names, server_link::ServerLink};
use rpc::LineWriter;
use terminals::AcpTerminals;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stead acp -- claude-code-acp     run an agent for an editor; its commands run in Stead\n  \
        stead acp --thread build         only answer terminal/create, output, wait_for_exit, kill\n                                   \
        and release\n\n\
        In an editor, configure `stead` as the agent's command, with `acp -- AGENT` as its arguments."
)]
pub(super) struct AcpArgs {
    /// Thread of the terminals
    #[arg(long, value_name = "NAME", default_value = names::DEFAULT_THREAD)]
    thread: String,
    #[command(flatten)]
    target: ServerArgs,
    /// Agent to run: its terminals are Stead's, and all its other messages pass
    #[arg(last = true, value_name = "AGENT")]
    agent: Vec<String>,
}

pub(super) async fn run(args: AcpArgs) -> anyhow::Result<ExitCode> {
    let terminals = Arc::new(AcpTerminals::new(ServerLink::new(args.target), args.thread));
    if !args.agent.is_empty() {
        return proxy::run(terminals, &args.agent).await;
    }
    let output = LineWriter::new(stdout());
    let mut lines = BufReader::new(stdin()).lines();
    let mut requests = JoinSet::new();
    while let Some(line) = lines.next_line().await.context("cannot read standard input")? {
        while requests.try_join_next().is_some() {}
        if !line.trim().is_empty() {
            let (terminals, output) = (terminals.clone(), output.clone());
            requests.spawn(async move {
                if let Some(answer) = rpc::answer(&terminals, &line).await {
                    output.send(&answer).await;
                }
            });
        }
    }
    // The agent has ended and receives no more answers; its terminals stay.
    requests.shutdown().await;
    Ok(ExitCode::SUCCESS)
}
