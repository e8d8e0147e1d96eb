//! `stead exec`, `history` and `output`: commands in a terminal's own shell.

use std::{
    io::{self, IsTerminal, Read, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Args;
use hyper::Method;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::{
    attach::data,
    client::{Client, Refusal, Target, escape},
    events::Events,
    names,
    show::{Form, line},
};
use crate::config::parse_duration;

/// What a shell says for a command that was ended by a time limit.
const TIMED_OUT: u8 = 124;
/// The command's fate is not known or it never ran.
const NO_RESULT: u8 = 125;
/// How long one look at a command's output waits for more.
const WAIT_MS: u32 = 10_000;
/// How long a server that is away is waited for.
const AWAY: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stead exec -- cd /srv '&&' make\n  \
    stead exec --thread build --timeout 10m --stream -- make test\n  \
    echo hi | stead exec --stdin -- cat\n\n\
    The exit code is the command's; 124 on a time-out, 125 if there is no result.")]
pub(super) struct ExecArgs {
    /// Terminal to run in
    #[arg(short, long, conflicts_with = "thread")]
    terminal: Option<String>,
    /// Thread whose default terminal to run in; made if there is none
    #[arg(long, default_value = names::DEFAULT_THREAD)]
    thread: String,
    /// End the command after this long, as in 30s or 2m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Print output as it comes
    #[arg(long)]
    stream: bool,
    /// Hand standard input to the command
    #[arg(long)]
    stdin: bool,
    /// Set a variable for this command alone
    #[arg(short, long, value_name = "KEY=VALUE")]
    env: Vec<String>,
    /// Run in this directory, this command alone
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Fail instead of waiting if the terminal is busy
    #[arg(long)]
    no_wait: bool,
    /// Print the whole receipt as JSON
    #[arg(long, conflicts_with = "stream")]
    json: bool,
    /// The command line; several words are joined with spaces
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
    #[command(flatten)]
    target: Target,
}

pub(super) async fn run(args: ExecArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let path = match &args.terminal {
        Some(terminal) => format!("/api/terminals/{}/exec", escape(terminal)),
        None => format!("/api/threads/{}/exec", escape(&args.thread)),
    };
    let mut body = json!({
        "command": args.command.join(" "),
        "env": names::pairs(&args.env)?,
        "if_busy": if args.no_wait { "fail" } else { "wait" },
    });
    if let Some(timeout) = args.timeout {
        body["timeout_ms"] = json!(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    }
    if let Some(cwd) = &args.cwd {
        body["cwd"] = json!(cwd);
    }
    if args.stdin {
        body["stdin"] = json!(read_stdin()?);
    }
    // A key of our own: if the connection breaks before the answer, asking again runs nothing twice.
    let key = uuid::Uuid::now_v7().to_string();
    let mut follow = Follow { client: &client, stream: args.stream, command: None, seen: [0; 2] };
    let receipt = follow.run(&path, &body, &key).await?;
    if args.json {
        super::show::json(&receipt)?;
    } else if !args.stream {
        print_output(&receipt)?;
    }
    if receipt["truncated"].as_bool().unwrap_or_default() && !args.stream {
        let id = receipt["command_id"].as_str().unwrap_or_default();
        eprintln!("stead: the output was cut; `stead output {id}` has more of it");
    }
    exit_code(&receipt)
}

/// A command being watched, over as many connections as it takes.
struct Follow<'a> {
    client: &'a Client,
    stream: bool,
    command: Option<String>,
    /// Bytes printed of stdout and stderr.
    seen: [u64; 2],
}

impl Follow<'_> {
    async fn run(&mut self, path: &str, body: &Value, key: &str) -> anyhow::Result<Value> {
        let headers = [("accept", "text/event-stream"), ("idempotency-key", key)];
        let deadline = tokio::time::Instant::now() + AWAY;
        loop {
            let started = self.client.send(Method::POST, path, Some(body), &headers).await;
            let cut = match started {
                Ok(answer) => match self.watch(Events::new(answer)).await {
                    Ok(Some(receipt)) => return Ok(receipt),
                    Ok(None) => None,
                    Err(error) => Some(error),
                },
                Err(error) if is_refusal(&error) => return Err(error),
                Err(error) => Some(error),
            };
            if let Some(command) = self.command.clone() {
                return self.rejoin(&command).await;
            }
            if tokio::time::Instant::now() > deadline {
                return Err(cut.unwrap_or_else(|| anyhow::anyhow!("the server ended the stream")));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Follows the stream to the receipt; none if it ends before.
    async fn watch(&mut self, mut events: Events) -> anyhow::Result<Option<Value>> {
        let mut interrupts = signal(SignalKind::interrupt())?;
        loop {
            let event = tokio::select! {
                event = events.next() => event?,
                _ = interrupts.recv() => {
                    self.interrupt().await;
                    continue;
                }
            };
            let Some(event) = event else { return Ok(None) };
            match event.name.as_str() {
                "started" => {
                    self.command = event.data["command_id"].as_str().map(str::to_owned);
                }
                "stdout" => self.output(0, &event.data)?,
                "stderr" => self.output(1, &event.data)?,
                "exit" => return Ok(Some(event.data)),
                _ => {}
            }
        }
    }

    fn output(&mut self, stream: usize, event: &Value) -> anyhow::Result<()> {
        let bytes = data(event)?;
        let offset = event["offset"].as_u64().unwrap_or(self.seen[stream]);
        // After a second start of the same stream some of it was printed already.
        let known = usize::try_from(self.seen[stream].saturating_sub(offset)).unwrap_or(usize::MAX);
        if let Some(fresh) = bytes.get(known..).filter(|fresh| !fresh.is_empty()) {
            if self.stream {
                print(stream, fresh)?;
            }
            self.seen[stream] = offset + bytes.len() as u64;
        }
        Ok(())
    }

    /// Hands Ctrl-C on; a command that has not started is left alone.
    async fn interrupt(&self) {
        let Some(command) = &self.command else { return };
        let path = format!("/api/commands/{}/signal", escape(command));
        if let Err(error) = self.client.post(&path, &json!({"signal": "INT"})).await {
            eprintln!("stead: cannot interrupt the command: {error:#}");
        }
    }

    /// The stream broke: the command did not. Its output is read on by offset, then its receipt.
    async fn rejoin(&mut self, command: &str) -> anyhow::Result<Value> {
        let path = format!("/api/commands/{}", escape(command));
        let deadline = tokio::time::Instant::now() + AWAY;
        loop {
            match self.client.get(&path).await {
                Ok(receipt) if receipt["status"] != "running" && receipt["status"] != "queued" => {
                    if self.stream {
                        for stream in [0, 1] {
                            self.seen[stream] =
                                copy(self.client, command, stream, self.seen[stream], Until::Now)
                                    .await?;
                        }
                    }
                    return Ok(receipt);
                }
                Ok(_) if self.stream => {
                    for stream in [0, 1] {
                        self.seen[stream] =
                            copy(self.client, command, stream, self.seen[stream], Until::Now)
                                .await?;
                    }
                }
                Ok(_) => {}
                Err(error) if is_refusal(&error) => return Err(error),
                Err(error) if tokio::time::Instant::now() > deadline => return Err(error),
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn is_refusal(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refusal>().is_some_and(|refusal| refusal.status.is_client_error())
}

fn read_stdin() -> anyhow::Result<String> {
    if io::stdin().is_terminal() {
        bail!("--stdin takes a pipe or a file; use `stead attach` to type");
    }
    let mut input = Vec::new();
    io::stdin().lock().read_to_end(&mut input).context("cannot read standard input")?;
    String::from_utf8(input).context("standard input must be UTF-8")
}

fn print_output(receipt: &Value) -> anyhow::Result<()> {
    for (stream, name) in ["stdout", "stderr"].into_iter().enumerate() {
        let bytes = match (&receipt[name], &receipt[format!("{name}_base64")]) {
            (Value::String(text), _) => text.clone().into_bytes(),
            (_, Value::String(text)) => STANDARD.decode(text).context("broken base64")?,
            _ => Vec::new(),
        };
        print(stream, &bytes)?;
    }
    Ok(())
}

/// Prints to standard output (0) or standard error (1).
fn print(stream: usize, bytes: &[u8]) -> io::Result<()> {
    let written = if stream == 0 {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush())
    } else {
        io::stderr().lock().write_all(bytes)
    };
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn exit_code(receipt: &Value) -> anyhow::Result<ExitCode> {
    if receipt["timed_out"].as_bool().unwrap_or_default() {
        eprintln!("stead: the command was ended after its time-out");
        return Ok(ExitCode::from(TIMED_OUT));
    }
    if let Some(limit) = receipt["limit_reached"].as_str() {
        eprintln!("stead: the sandbox met a limit: {}", limit.replace('_', " "));
    }
    if receipt["status"] == "cancelled" {
        eprintln!("stead: the command was cancelled");
        return Ok(ExitCode::from(NO_RESULT));
    }
    match (receipt["exit_code"].as_i64(), receipt["status"].as_str()) {
        (Some(code), _) => Ok(ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1))),
        (None, status) => {
            eprintln!("stead: no exit code: the command is {}", status.unwrap_or("unknown"));
            Ok(ExitCode::from(NO_RESULT))
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stead output cmd_0198… --follow")]
pub(super) struct OutputArgs {
    /// The command's id
    command: String,
    /// Wait for more until the command's output ends
    #[arg(short, long)]
    follow: bool,
    /// Standard error instead of standard output
    #[arg(long)]
    stderr: bool,
    /// Begin at this byte
    #[arg(long, default_value_t = 0)]
    from: u64,
    #[command(flatten)]
    target: Target,
}

pub(super) async fn output(args: OutputArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let stream = usize::from(args.stderr);
    let until = if args.follow { Until::End } else { Until::Now };
    copy(&client, &args.command, stream, args.from, until).await?;
    Ok(ExitCode::SUCCESS)
}

/// How far output is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// To what is there.
    Now,
    /// To the end, waiting for it.
    End,
}

/// Prints a command's output from an offset on; the offset after it.
async fn copy(
    client: &Client,
    command: &str,
    stream: usize,
    mut from: u64,
    until: Until,
) -> anyhow::Result<u64> {
    let name = ["stdout", "stderr"][stream];
    let wait = if until == Until::End { WAIT_MS } else { 0 };
    loop {
        let path = format!(
            "/api/commands/{}/output?stream={name}&from={from}&wait_ms={wait}",
            escape(command)
        );
        let answer = client.send(Method::GET, &path, None, &[]).await?;
        let header = |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok());
        let next = header("x-next-offset").and_then(|text| text.parse().ok()).unwrap_or(from);
        let offset = header("x-offset").and_then(|text| text.parse().ok()).unwrap_or(from);
        let ended = header("x-end") == Some("true");
        if offset > from {
            eprintln!("stead: {} bytes of {name} are no longer kept", offset - from);
        }
        let bytes = answer.bytes().await?;
        print(stream, &bytes)?;
        from = next;
        if ended || (bytes.is_empty() && until == Until::Now) {
            return Ok(from);
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stead history -q make --limit 20")]
pub(super) struct HistoryArgs {
    /// Terminal, or thread for its default terminal
    #[arg(default_value = names::DEFAULT_THREAD)]
    name: String,
    /// Terminal or thread, as `exec` takes them
    #[arg(short, long = "terminal", visible_alias = "thread", value_name = "NAME")]
    terminal: Option<String>,
    /// Only commands with this text in them
    #[arg(short, long)]
    query: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    target: Target,
}

pub(super) async fn history(args: HistoryArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let name = args.terminal.as_ref().unwrap_or(&args.name);
    let terminal = names::terminal(&client, name, names::IfMissing::Refuse).await?;
    let mut path = format!("/api/terminals/{}/commands", escape(&terminal));
    if let Some(query) = &args.query {
        path.push_str(&format!("?q={}", escape(query)));
    }
    let items = client.list(&path, args.limit.max(1)).await?;
    if items.is_empty() && !args.form.json {
        line("no commands")?;
        return Ok(ExitCode::SUCCESS);
    }
    args.form.list(
        &items,
        &[
            ("command id", "/command_id"),
            ("status", "/status"),
            ("exit", "/exit_code"),
            ("ms", "/duration_ms"),
            ("by", "/source"),
            ("at", "/created_at"),
            ("command", "/command"),
        ],
    )?;
    Ok(ExitCode::SUCCESS)
}
