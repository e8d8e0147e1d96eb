//! `stead exec`, `history` and `output`: commands in a terminal's shell.

use std::{
    io::{self, IsTerminal, Read, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Args;
use http::Method;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    client::{ApiClient, ServerArgs, data, escape},
    list::{ListArgs, Table},
    names,
    progress::with_spinner,
    reconnect::{NOTICE_AFTER, RETRY_DELAY, Reconnect},
    sse::EventStream,
};
use config::parse_duration;

/// The exit status of a command that timed out, as `timeout` uses it.
pub(super) const TIMED_OUT: u8 = 124;
/// The exit status if the outcome is unknown or the command never ran.
pub(super) const NO_RESULT: u8 = 125;
/// How long one request for output waits for more.
const OUTPUT_WAIT_MS: u32 = 10_000;
/// The time without a response after which a log gets a notice. A sandbox may have to be created first.
const SILENCE_NOTICE_AFTER: Duration = Duration::from_secs(10);
/// How many commands of a terminal are searched for the running one.
const RECENT_COMMANDS: usize = 100;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stead exec -- cd /srv '&&' make\n  \
    stead exec --thread build --timeout 10m --stream -- make test\n  \
    stead exec -t my-sandbox -- pwd\n  \
    echo hi | stead exec --stdin -- cat\n\n\
    Exit status: that of the command; 124 if it timed out, 125 if there is no result. The shell's own\n\
    are 126 for a command that cannot be executed and 127 for one that was not found.")]
pub(super) struct ExecArgs {
    /// Terminal id, or thread or sandbox for its default terminal
    #[arg(short, long, value_name = "NAME", conflicts_with = "thread")]
    terminal: Option<String>,
    /// Thread to run in; created if it does not exist
    #[arg(long, default_value = names::DEFAULT_THREAD)]
    thread: String,
    /// Time limit, such as 30s or 2m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Print output as it arrives
    #[arg(long)]
    stream: bool,
    /// Pass standard input to the command
    #[arg(long)]
    stdin: bool,
    /// Set an environment variable for this command only
    #[arg(short, long, value_name = "KEY=VALUE")]
    env: Vec<String>,
    /// Working directory for this command only
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Fail instead of waiting if the terminal is busy
    #[arg(long)]
    no_wait: bool,
    /// Print the result as JSON
    #[arg(long, conflicts_with = "stream")]
    json: bool,
    /// Command line; several words are joined with spaces
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
    #[command(flatten)]
    target: ServerArgs,
}

pub(super) async fn run(args: ExecArgs) -> anyhow::Result<ExitCode> {
    report(execute(args).await)
}

/// Prints an error. All our own failures have one exit status, which scripts can distinguish from the program's.
pub(super) fn report(result: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    Ok(result.unwrap_or_else(|error| {
        eprintln!("stead: {error:#}");
        ExitCode::from(NO_RESULT)
    }))
}

async fn execute(args: ExecArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let path = match &args.terminal {
        Some(name) => {
            let terminal = names::terminal(&client, name, names::IfMissing::Fail).await?;
            format!("/api/terminals/{}/exec", escape(&terminal))
        }
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
    // With an idempotency key, a request that is repeated after a broken connection runs nothing twice.
    let key = uuid::Uuid::now_v7().to_string();
    let mut follow = ExecFollower {
        client: &client,
        stream: args.stream,
        command: None,
        seen: [0; 2],
        reconnect: Reconnect::default(),
    };
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

/// Runs a command and prints its output as it arrives. Returns its receipt.
pub(super) async fn stream(client: &ApiClient, path: &str, body: &Value) -> anyhow::Result<Value> {
    let reconnect = Reconnect::default();
    let mut follow = ExecFollower { client, stream: true, command: None, seen: [0; 2], reconnect };
    follow.run(path, body, &uuid::Uuid::now_v7().to_string()).await
}

/// Follows a command over as many connections as necessary.
struct ExecFollower<'a> {
    client: &'a ApiClient,
    stream: bool,
    command: Option<String>,
    /// Bytes received of stdout and stderr.
    seen: [u64; 2],
    reconnect: Reconnect,
}

impl ExecFollower<'_> {
    async fn run(&mut self, path: &str, body: &Value, key: &str) -> anyhow::Result<Value> {
        let headers = [("accept", "text/event-stream"), ("idempotency-key", key)];
        // One for all connections: Ctrl-C between two of them is kept for the next.
        let mut interrupts = None;
        loop {
            let sent = self.client.send(Method::POST, path, Some(body), &headers);
            let waiting = async {
                tokio::time::sleep(SILENCE_NOTICE_AFTER).await;
                if !io::stderr().is_terminal() {
                    let authority = self.client.authority();
                    eprintln!("stead: waiting for {authority} to start the command");
                }
                std::future::pending().await
            };
            // On a terminal, the time is counted.
            let started = with_spinner(async {
                tokio::select! { started = sent => started, started = waiting => started }
            });
            let error = match started.await {
                Ok(answer) => {
                    self.reconnect.connected();
                    let interrupts = match &mut interrupts {
                        Some(interrupts) => interrupts,
                        none => none.insert(signal(SignalKind::interrupt())?),
                    };
                    match self.watch(EventStream::new(answer), interrupts).await {
                        Ok(Some(receipt)) => return Ok(receipt),
                        Ok(None) => anyhow::anyhow!("the server ended the stream"),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            if let (Some(command), Some(interrupts)) = (self.command.clone(), &mut interrupts) {
                return self.rejoin(&command, interrupts).await;
            }
            self.reconnect.pause(self.client, error).await?;
        }
    }

    /// Follows the stream to the result; `None` if it ends before.
    async fn watch(
        &mut self,
        mut events: EventStream,
        interrupts: &mut Signal,
    ) -> anyhow::Result<Option<Value>> {
        let quiet = tokio::time::sleep(NOTICE_AFTER);
        tokio::pin!(quiet);
        let mut terminal = None;
        loop {
            let event = tokio::select! {
                event = events.next() => event?,
                _ = interrupts.recv() => {
                    self.interrupt().await;
                    continue;
                }
                () = &mut quiet, if terminal.is_some() => {
                    if let Some(terminal) = terminal.take() {
                        self.explain(terminal).await;
                    }
                    continue;
                }
            };
            let Some(event) = event else { return Ok(None) };
            match event.name.as_str() {
                "started" => {
                    self.command = event.data["command_id"].as_str().map(str::to_owned);
                    terminal = event.data["terminal_id"].as_str().map(str::to_owned);
                }
                "stdout" => self.output(0, &event.data)?,
                "stderr" => self.output(1, &event.data)?,
                "exit" => return Ok(Some(event.data)),
                _ => {}
            }
        }
    }

    /// Prints what a queued command waits for.
    async fn explain(&self, terminal: String) {
        let path = format!("/api/terminals/{}/commands", escape(&terminal));
        let recent = self.client.list(&path, RECENT_COMMANDS);
        // A failed list request only costs the notice.
        let Ok(Ok(recent)) = tokio::time::timeout(NOTICE_AFTER * 10, recent).await else { return };
        if let Some(reason) = waits_for(&recent, self.command.as_deref(), &terminal) {
            eprintln!("stead: {reason}");
        }
    }

    fn output(&mut self, stream: usize, event: &Value) -> anyhow::Result<()> {
        let bytes = data(event)?;
        let offset = event["offset"].as_u64().unwrap_or(self.seen[stream]);
        // A restarted stream repeats output.
        let known = usize::try_from(self.seen[stream].saturating_sub(offset)).unwrap_or(usize::MAX);
        if let Some(fresh) = bytes.get(known..).filter(|fresh| !fresh.is_empty()) {
            if self.stream {
                print(stream, fresh)?;
            }
            self.seen[stream] = offset + bytes.len() as u64;
        }
        Ok(())
    }

    /// Forwards Ctrl-C to a command that has started.
    async fn interrupt(&self) {
        let Some(command) = &self.command else { return };
        let path = format!("/api/commands/{}/signal", escape(command));
        if let Err(error) = self.client.post(&path, &json!({"signal": "INT"})).await {
            eprintln!("stead: cannot interrupt the command: {error:#}");
        }
    }

    /// Continues after the stream broke: reads the output by offset, then the result.
    async fn rejoin(&mut self, command: &str, interrupts: &mut Signal) -> anyhow::Result<Value> {
        let path = format!("/api/commands/{}", escape(command));
        loop {
            match self.client.get(&path).await {
                Ok(receipt) if has_ended(&receipt) => {
                    if self.stream {
                        for stream in [0, 1] {
                            self.seen[stream] = copy(
                                self.client,
                                command,
                                stream,
                                self.seen[stream],
                                CopyUntil::Now,
                            )
                            .await?;
                        }
                    }
                    return Ok(receipt);
                }
                Ok(_) if self.stream => {
                    for stream in [0, 1] {
                        self.seen[stream] =
                            copy(self.client, command, stream, self.seen[stream], CopyUntil::Now)
                                .await?;
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    self.reconnect.pause(self.client, error).await?;
                    continue;
                }
            }
            self.reconnect.connected();
            if tokio::time::timeout(RETRY_DELAY, interrupts.recv()).await.is_ok() {
                self.interrupt().await;
            }
        }
    }
}

/// Returns why a command has not started, from the latest commands of its terminal; `None` if it has.
fn waits_for(recent: &[Value], command: Option<&str>, terminal: &str) -> Option<String> {
    let own = recent.iter().find(|one| one["command_id"].as_str() == command)?;
    if own["status"] != "queued" {
        return None;
    }
    let running = recent.iter().find(|one| one["status"] == "running");
    Some(match running.and_then(|one| Some((one["command"].as_str()?, &one["command_id"]))) {
        Some((text, id)) => {
            let line = text.lines().next().unwrap_or_default();
            let id = id.as_str().unwrap_or_default();
            format!("waiting for `{line}`, which runs in this terminal ({id})")
        }
        None => format!(
            "waiting for the program in the foreground of this terminal; \
             `stead attach {terminal}` shows it"
        ),
    })
}

fn read_stdin() -> anyhow::Result<String> {
    if io::stdin().is_terminal() {
        bail!("--stdin needs a pipe or a file; to type, use `stead attach`");
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

pub(super) fn has_ended(receipt: &Value) -> bool {
    receipt["status"] != "running" && receipt["status"] != "queued"
}

pub(super) fn exit_code(receipt: &Value) -> anyhow::Result<ExitCode> {
    if receipt["timed_out"].as_bool().unwrap_or_default() {
        eprintln!("stead: the command timed out");
        return Ok(ExitCode::from(TIMED_OUT));
    }
    if let Some(limit) = receipt["limit_reached"].as_str() {
        eprintln!("stead: the sandbox reached a limit: {}", limit.replace('_', " "));
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
    /// Command id, or a unique prefix, from `stead history`
    command: String,
    /// Follow the output until it ends
    #[arg(short, long)]
    follow: bool,
    /// Print standard error instead of standard output
    #[arg(long)]
    stderr: bool,
    /// Offset of the first byte
    #[arg(long, default_value_t = 0)]
    from: u64,
    #[command(flatten)]
    target: ServerArgs,
}

pub(super) async fn output(args: OutputArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let stream = usize::from(args.stderr);
    let until = if args.follow { CopyUntil::End } else { CopyUntil::Now };
    let command = names::command(&client, &args.command).await?;
    copy(&client, &command, stream, args.from, until).await?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyUntil {
    /// Stop at the end of the current output.
    Now,
    /// Wait until the output is complete.
    End,
}

/// Prints the output of a command from an offset. Returns the offset after it.
async fn copy(
    client: &ApiClient,
    command: &str,
    stream: usize,
    mut from: u64,
    until: CopyUntil,
) -> anyhow::Result<u64> {
    let name = ["stdout", "stderr"][stream];
    let wait = if until == CopyUntil::End { OUTPUT_WAIT_MS } else { 0 };
    loop {
        let path = format!(
            "/api/commands/{}/output?stream={name}&from={from}&wait_ms={wait}",
            escape(command)
        );
        let answer = client.send(Method::GET, &path, None, &[]).await?;
        let offset_in = |name| answer.header(name).and_then(|text| text.parse().ok());
        let next = offset_in("x-next-offset").unwrap_or(from);
        let offset = offset_in("x-offset").unwrap_or(from);
        let ended = answer.header("x-end") == Some("true");
        if offset > from {
            eprintln!("stead: {} bytes of {name} are no longer kept", offset - from);
        }
        let bytes = answer.bytes().await?;
        print(stream, &bytes)?;
        from = next;
        if ended || (bytes.is_empty() && until == CopyUntil::Now) {
            return Ok(from);
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stead history --query make --limit 20")]
pub(super) struct HistoryArgs {
    /// Terminal id, or thread or sandbox for its default terminal
    #[arg(default_value = names::DEFAULT_THREAD)]
    name: String,
    /// The same as NAME, as `stead exec` takes it
    #[arg(short, long = "terminal", visible_alias = "thread", value_name = "NAME")]
    terminal: Option<String>,
    /// Only commands that contain this text
    #[arg(long)]
    query: Option<String>,
    /// Maximum number of commands
    #[arg(long, default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    form: ListArgs,
    #[command(flatten)]
    target: ServerArgs,
}

pub(super) async fn history(args: HistoryArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let name = args.terminal.as_ref().unwrap_or(&args.name);
    let terminal = names::terminal(&client, name, names::IfMissing::Prefix).await?;
    let mut path = format!("/api/terminals/{}/commands", escape(&terminal));
    if let Some(query) = &args.query {
        path.push_str(&format!("?q={}", escape(query)));
    }
    let columns = [
        ("command id", "/command_id"),
        ("status", "/status"),
        ("exit", "/exit_code"),
        ("ms", "/duration_ms"),
        ("by", "/source"),
        ("at", "/created_at"),
        ("command", "/command"),
    ];
    let table = Table { columns: &columns, empty: Some("no commands"), item: None };
    args.form.show_path(table, &client, &path, args.limit.max(1)).await?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queued_command_reports_what_it_waits_for() {
        let one = |id: &str, status: &str, command: &str| json!({"command_id": id, "status": status, "command": command});
        let reported = |recent: &[Value]| waits_for(recent, Some("c2"), "term_1");
        let queued = one("c2", "queued", "ls");
        assert_eq!(
            reported(&[queued.clone(), one("c1", "running", "make\nmake test")]).unwrap(),
            "waiting for `make`, which runs in this terminal (c1)"
        );
        assert_eq!(
            reported(&[queued, one("c1", "finished", "make")]).unwrap(),
            "waiting for the program in the foreground of this terminal; `stead attach term_1` \
             shows it"
        );
        assert_eq!(reported(&[one("c2", "running", "ls")]), None);
        assert_eq!(reported(&[one("c1", "running", "ls")]), None);
    }
}
