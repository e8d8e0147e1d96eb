//! `stead events` and `stead wait`: following what happens on a server.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use http::Method;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    client::{ApiClient, ApiResponse, ServerArgs, escape},
    exec, names,
    reconnect::{NOTICE_AFTER, RETRY_DELAY, Reconnect},
    show::{self, PrintArgs, line},
    sse::EventStream,
};

/// How long one request waits for the end of a command.
const WAIT: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stead events\n  stead events --type command_waiting --json\n\n\
    Follows a restart of the server without missing an event, as far as the server keeps them."
)]
pub(super) struct EventsArgs {
    /// Only events of this type; may be repeated
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Start after this event id, instead of now
    #[arg(long, value_name = "ID")]
    from: Option<u64>,
    /// Stop after this many events
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    form: PrintArgs,
    #[command(flatten)]
    target: ServerArgs,
}

pub(super) async fn events(args: EventsArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let mut last = args.from;
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut reconnect = Reconnect::default();
    while left > 0 {
        let mut events = match subscribe(&client, last).await {
            Ok(answer) => EventStream::new(answer),
            Err(error) => {
                reconnect.pause(&client, error).await?;
                continue;
            }
        };
        reconnect.connected();
        while left > 0
            && let Ok(Some(event)) = events.next().await
        {
            last = event.id.or(last);
            if !args.types.is_empty() && !args.types.contains(&event.name) {
                continue;
            }
            left -= 1;
            print(args.form, &event.name, event.data)?;
        }
        if left > 0 {
            // The server ended the stream: it is being restarted.
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn subscribe(client: &ApiClient, last: Option<u64>) -> anyhow::Result<ApiResponse> {
    let from = last.map(|last| format!("?from={last}")).unwrap_or_default();
    let headers = [("accept", "text/event-stream")];
    client.send(Method::GET, &format!("/api/events{from}"), None, &headers).await
}

fn print(form: PrintArgs, name: &str, mut data: Value) -> std::io::Result<()> {
    if form.json {
        if let Value::Object(fields) = &mut data {
            fields.entry("type").or_insert_with(|| name.into());
        }
        return show::json_line(&data);
    }
    line(&format!("{name:<24} {}", show::plain(&data)))
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stead wait build                 wait for the last command of a thread\n  \
    stead wait cmd_0198… --timeout 10m\n\n\
    Exit status: that of the command; 124 if it timed out or --timeout passed, 125 if there is no result."
)]
pub(super) struct WaitArgs {
    /// Command id, or terminal or thread for its last command
    #[arg(default_value = names::DEFAULT_THREAD)]
    name: String,
    /// The same as NAME
    #[arg(short, long, visible_alias = "thread", value_name = "NAME", conflicts_with = "name")]
    terminal: Option<String>,
    /// Stop waiting after this time, such as 30s or 2m; the command keeps running
    #[arg(long, value_name = "TIME", value_parser = config::parse_duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    form: PrintArgs,
    #[command(flatten)]
    target: ServerArgs,
}

pub(super) async fn wait(args: WaitArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let name = args.terminal.as_ref().unwrap_or(&args.name);
    let command = match name.starts_with("cmd_") {
        true => names::command(&client, name).await?,
        false => last_command(&client, name).await?,
    };
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut reconnect = Reconnect::default();
    // A command that takes longer is named.
    let mut wait = NOTICE_AFTER;
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let wait_ms = left.map_or(wait, |left| left.min(wait)).as_millis();
        let path = format!("/api/commands/{}?wait_ms={wait_ms}", escape(&command));
        match client.get(&path).await {
            Ok(receipt) if exec::has_ended(&receipt) => {
                if args.form.json {
                    show::json(&receipt)?;
                }
                return exec::exit_code(&receipt);
            }
            Ok(_) if left.is_some_and(|left| left.is_zero()) => {
                eprintln!("stead: {command} still runs");
                return Ok(ExitCode::from(exec::TIMED_OUT));
            }
            Ok(_) => {
                reconnect.connected();
                if wait != WAIT {
                    eprintln!("stead: waiting for {command}");
                    wait = WAIT;
                }
            }
            Err(error) => reconnect.pause(&client, error).await?,
        }
    }
}

async fn last_command(client: &ApiClient, name: &str) -> anyhow::Result<String> {
    let terminal = names::terminal(client, name, names::IfMissing::Prefix).await?;
    let path = format!("/api/terminals/{}/commands", escape(&terminal));
    let commands = client.list(&path, 1).await?;
    match commands.first() {
        Some(command) => names::id(command, "command_id"),
        None => anyhow::bail!("no command has run in {name:?}"),
    }
}
