//! Commands for terminals: new, ls, send, snapshot, logs, resize, kill, record, versions and so on.

use std::{
    io::{self, IsTerminal, Read, Write},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use futures_util::StreamExt;
use http::Method;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::{
    attach::{self, AttachRole},
    client::{ApiClient, ServerArgs, data, escape},
    exec,
    list::{ListArgs, Table},
    names::{self, IfMissing},
    raw,
    show::{Column, PrintArgs, line},
};

/// Maximum number of terminals in a list.
const MAX_ITEMS: usize = 100_000;
/// Maximum number of lines above the screen that `logs` prints.
const MAX_SCROLLBACK_LINES: u32 = 100_000;

pub(super) const COLUMNS: &[Column] = &[
    ("terminal", "/terminal_id"),
    ("thread", "/thread_id"),
    ("status", "/status"),
    ("size", "/size"),
    ("clients", "/clients"),
    ("cwd", "/cwd"),
    ("title", "/title"),
    ("last activity", "/last_activity_at"),
];

#[derive(Debug, Args)]
pub(super) struct TerminalArgs {
    /// Terminal id, or thread or sandbox for its default terminal
    #[arg(default_value = names::DEFAULT_THREAD)]
    name: String,
    /// The same as NAME
    #[arg(short, long, visible_alias = "thread", value_name = "NAME", conflicts_with = "name")]
    terminal: Option<String>,
    #[command(flatten)]
    target: ServerArgs,
}

impl TerminalArgs {
    /// Returns the client and the path of the terminal, for a request that only reads.
    async fn path(&self) -> anyhow::Result<(ApiClient, String)> {
        self.path_or(IfMissing::Prefix).await
    }

    async fn path_or(&self, missing: IfMissing) -> anyhow::Result<(ApiClient, String)> {
        let name = self.terminal.as_ref().unwrap_or(&self.name);
        path(&self.target, name, missing).await
    }
}

async fn path(
    target: &ServerArgs,
    name: &str,
    missing: IfMissing,
) -> anyhow::Result<(ApiClient, String)> {
    let client = target.client()?;
    let terminal = names::terminal(&client, name, missing).await?;
    Ok((client, format!("/api/terminals/{}", escape(&terminal))))
}

/// The terminal of a command with another positional argument.
#[derive(Debug, Args)]
pub(super) struct FirstTerminalArgs {
    /// Terminal id, or thread or sandbox for its default terminal
    name: Option<String>,
    /// The same as NAME
    #[arg(short, long, visible_alias = "thread", value_name = "NAME", conflicts_with = "name")]
    terminal: Option<String>,
    #[command(flatten)]
    target: ServerArgs,
}

impl FirstTerminalArgs {
    async fn path(&self) -> anyhow::Result<(ApiClient, String)> {
        let name = self.terminal.as_deref().or(self.name.as_deref());
        path(&self.target, name.unwrap_or(names::DEFAULT_THREAD), IfMissing::Fail).await
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stead new\n  stead new -t build -d -- htop\n  \
    stead new --cwd /srv -e EDITOR=vim\n  \
    stead new -t build --provider namespace --memory 1g --cpus 1 --egress github.com:443")]
pub(super) struct NewArgs {
    /// Thread, or sandbox, of the terminal; a thread is created if it does not exist
    #[arg(short, long, default_value = names::DEFAULT_THREAD)]
    thread: String,
    /// Provider of the thread's sandbox, if the thread is created
    #[arg(long)]
    provider: Option<String>,
    #[command(flatten)]
    sandbox: super::sandboxes::SandboxArgs,
    /// Do not attach; print the terminal id
    #[arg(short, long)]
    detached: bool,
    /// Working directory
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Set an environment variable
    #[arg(short, long, value_name = "KEY=VALUE")]
    env: Vec<String>,
    /// Shell to run: bash, zsh or sh
    #[arg(long)]
    shell: Option<String>,
    /// Columns (default: this terminal's)
    #[arg(long)]
    cols: Option<u16>,
    /// Rows (default: this terminal's)
    #[arg(long)]
    rows: Option<u16>,
    /// Print the terminal as JSON; implies --detached
    #[arg(long)]
    json: bool,
    /// Program to run instead of a shell
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    cmd: Vec<String>,
    #[command(flatten)]
    target: ServerArgs,
}

/// Creates a terminal. Our own failures have an exit status that is not the program's.
pub(super) async fn new(args: NewArgs) -> anyhow::Result<ExitCode> {
    exec::report(create(args).await)
}

async fn create(args: NewArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let size = raw::size();
    let mut choices = serde_json::Map::new();
    if let Some(provider) = args.provider {
        choices.insert("provider".into(), provider.into());
    }
    let settings = args.sandbox.given();
    if !settings.is_empty() {
        choices.insert("sandbox".into(), settings.into());
    }
    let thread = names::thread_or_new(&client, &args.thread).await?;
    if !choices.is_empty() {
        let path = format!("/api/threads/{}", escape(&thread));
        client.json(Method::PUT, &path, Some(&Value::Object(choices))).await?;
    }
    let mut body = json!({"env": names::pairs(&args.env)?});
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            body[key] = value;
        }
    };
    put("cols", args.cols.or(size.map(|(cols, _)| cols)).map(Value::from));
    put("rows", args.rows.or(size.map(|(_, rows)| rows)).map(Value::from));
    put("cwd", args.cwd.map(Value::from));
    put("shell", args.shell.map(Value::from));
    put("cmd", (!args.cmd.is_empty()).then(|| Value::from(args.cmd)));
    let made = client.post(&format!("/api/threads/{}/terminals", escape(&thread)), &body).await?;
    let terminal = names::id(&made, "terminal_id")?;
    if args.json {
        super::show::json(&made)?;
    } else if args.detached || !io::stdin().is_terminal() {
        line(&terminal)?;
    } else {
        let keys = (attach::DETACH, Some(attach::STATUS));
        return attach::attach(&client, &terminal, AttachRole::Driver, keys).await;
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stead ls\n  stead ls -t build --json")]
pub(super) struct LsArgs {
    /// Only terminals of this thread or sandbox
    #[arg(short, long)]
    thread: Option<String>,
    /// How many threads to search, most recently used first
    #[arg(long, default_value_t = 1000)]
    limit: usize,
    #[command(flatten)]
    form: ListArgs,
    #[command(flatten)]
    target: ServerArgs,
}

pub(super) async fn ls(args: LsArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let empty = Some("no terminals; create one with `stead new`");
    let table = Table { columns: COLUMNS, empty, item: None };
    args.form.show(table, &client, async || terminals_of(&client, &args).await).await?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the terminals of a thread or of all threads, for the table with their size.
async fn terminals_of(client: &ApiClient, args: &LsArgs) -> anyhow::Result<Vec<Value>> {
    let threads = match &args.thread {
        Some(name) => vec![names::thread(client, name).await?],
        None => {
            let threads = client.list("/api/threads", args.limit.max(1)).await?;
            let names = threads.iter().filter_map(|thread| thread["thread_id"].as_str());
            names.map(str::to_owned).collect()
        }
    };
    let mut items = Vec::new();
    for thread in threads {
        let path = format!("/api/threads/{}/terminals", escape(&thread));
        match client.list(&path, MAX_ITEMS).await {
            Ok(more) => items.extend(more),
            // The thread was deleted after it was listed.
            Err(error) if names::is_missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    if !args.form.print.json {
        for item in &mut items {
            item["size"] = match (item["cols"].as_u64(), item["rows"].as_u64()) {
                (Some(cols), Some(rows)) => format!("{cols}x{rows}").into(),
                _ => Value::Null,
            };
        }
    }
    Ok(items)
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stead send -t build 'make test' --enter\n  \
    printf '\\x03' | stead send -t build")]
pub(super) struct SendArgs {
    /// Terminal id, or thread or sandbox for its default terminal
    #[arg(short, long, default_value = names::DEFAULT_THREAD)]
    terminal: String,
    /// Text to send (default: standard input)
    text: Option<String>,
    /// Press Enter after the text
    #[arg(long)]
    enter: bool,
    #[command(flatten)]
    target: ServerArgs,
}

pub(super) async fn send(args: SendArgs) -> anyhow::Result<ExitCode> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let client = args.target.client()?;
    let terminal = names::terminal(&client, &args.terminal, IfMissing::Create).await?;
    let mut bytes = match args.text {
        Some(text) => text.into_bytes(),
        None => {
            let mut input = Vec::new();
            io::stdin().lock().read_to_end(&mut input).context("cannot read standard input")?;
            input
        }
    };
    if args.enter {
        bytes.push(b'\r');
    }
    let path = format!("/api/terminals/{}/input", escape(&terminal));
    for piece in bytes.chunks(256 * 1024) {
        let write_id = uuid::Uuid::now_v7().to_string();
        let body = json!({"data_base64": STANDARD.encode(piece), "write_id": write_id});
        client.post(&path, &body).await?;
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SnapshotFormat {
    /// Plain text
    Text,
    /// HTML page
    Html,
    /// Escape sequences that draw the screen
    Ansi,
    /// Size, cursor, modes and lines as JSON
    Json,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stead snapshot build\n  stead snapshot build --format html > screen.html"
)]
pub(super) struct SnapshotArgs {
    #[command(flatten)]
    named: TerminalArgs,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: SnapshotFormat,
    /// Lines of scrollback to include
    #[arg(long)]
    scrollback: Option<u32>,
}

pub(super) async fn snapshot(args: SnapshotArgs) -> anyhow::Result<ExitCode> {
    let (client, path) = args.named.path().await?;
    let format = match args.format {
        SnapshotFormat::Text => "?format=text",
        SnapshotFormat::Html => "?format=html",
        SnapshotFormat::Ansi | SnapshotFormat::Json => "?",
    };
    let mut path = format!("{path}/snapshot{format}");
    if let Some(lines) = args.scrollback {
        path.push_str(&format!("&scrollback={lines}"));
    }
    let path = path.replace("?&", "?");
    let answer =
        client.send(Method::GET, path.trim_end_matches('?'), None, &[]).await?.bytes().await?;
    match args.format {
        SnapshotFormat::Ansi => {
            let answer: Value = serde_json::from_slice(&answer)?;
            out(&data(&answer)?)?;
        }
        SnapshotFormat::Text | SnapshotFormat::Html | SnapshotFormat::Json => {
            out(&answer)?;
            if !answer.ends_with(b"\n") {
                out(b"\n")?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stead logs build --follow\n  stead logs build -n 20")]
pub(super) struct LogsArgs {
    #[command(flatten)]
    named: TerminalArgs,
    /// Follow the output
    #[arg(short, long)]
    follow: bool,
    /// Print only the last LINES lines
    #[arg(short = 'n', long)]
    lines: Option<u32>,
}

/// Returns the last lines of a text that does not end with a line feed.
fn last_lines(text: &[u8], lines: u32) -> &[u8] {
    let feeds = text.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    let mut starts = std::iter::once(text.len()).chain(feeds.map(|(at, _)| at + 1));
    starts.nth(lines as usize).map_or(text, |start| &text[start..])
}

pub(super) async fn logs(args: LogsArgs) -> anyhow::Result<ExitCode> {
    let (client, path) = args.named.path().await?;
    // The offset first: output that arrives in between is printed twice rather than lost.
    let offset = client.get(&format!("{path}/snapshot")).await?["offset"].as_u64();
    let scrollback = args.lines.unwrap_or(MAX_SCROLLBACK_LINES).min(MAX_SCROLLBACK_LINES);
    let text = format!("{path}/snapshot?format=text&scrollback={scrollback}");
    let text = client.send(Method::GET, &text, None, &[]).await?.bytes().await?;
    let text = text.trim_ascii_end();
    // The scrollback is followed by the whole screen.
    let shown = args.lines.map_or(text, |lines| last_lines(text, lines));
    out(shown)?;
    if args.lines != Some(0) {
        out(b"\n")?;
    }
    if !args.follow {
        return Ok(ExitCode::SUCCESS);
    }
    let from = offset.map(|offset| format!("&from={offset}")).unwrap_or_default();
    let mut socket = client.websocket(&format!("{path}/ws?mode=viewer{from}")).await?;
    let mut picture = false;
    while let Some(message) = socket.next().await {
        match message.context("the connection was lost")? {
            Message::Binary(_) if picture => picture = false,
            Message::Binary(bytes) => out(&bytes)?,
            Message::Text(text) => {
                let control: Value = serde_json::from_str(&text)?;
                match control["type"].as_str().unwrap_or_default() {
                    "snapshot" => picture = true,
                    "exit" => return Ok(ExitCode::SUCCESS),
                    _ => {}
                }
            }
            Message::Close(_) => break,
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
    bail!("the server closed the connection")
}

#[derive(Debug, Args)]
#[command(
    allow_missing_positional = true,
    after_help = "Examples:\n  stead resize build 120x40\n  stead resize -t build 120x40"
)]
pub(super) struct ResizeArgs {
    #[command(flatten)]
    named: FirstTerminalArgs,
    /// Columns and rows
    #[arg(value_name = "COLSxROWS", value_parser = parse_size)]
    size: (u16, u16),
}

fn parse_size(text: &str) -> Result<(u16, u16), String> {
    let parsed = text
        .split_once('x')
        .and_then(|(cols, rows)| Some((cols.trim().parse().ok()?, rows.trim().parse().ok()?)));
    parsed.ok_or_else(|| "expected COLSxROWS, such as 80x24".into())
}

pub(super) async fn resize(args: ResizeArgs) -> anyhow::Result<ExitCode> {
    let (client, path) = args.named.path().await?;
    let (cols, rows) = args.size;
    client.post(&format!("{path}/resize"), &json!({"cols": cols, "rows": rows})).await?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stead kill term_0198…\n  stead kill build --signal INT")]
pub(super) struct KillArgs {
    /// Terminal id, or thread or sandbox for its default terminal
    #[arg(required_unless_present = "terminal")]
    name: Option<String>,
    /// The same as NAME
    #[arg(short, long, visible_alias = "thread", value_name = "NAME", conflicts_with = "name")]
    terminal: Option<String>,
    /// Send this signal to the foreground program instead of closing the terminal
    #[arg(short, long)]
    signal: Option<String>,
    #[command(flatten)]
    target: ServerArgs,
}

pub(super) async fn kill(args: KillArgs) -> anyhow::Result<ExitCode> {
    // Never by a prefix: the terminal that was meant may be gone.
    let name = args.terminal.or(args.name).context("no terminal is named")?;
    let (client, path) = path(&args.target, &name, IfMissing::Fail).await?;
    match args.signal {
        Some(signal) => {
            client.post(&format!("{path}/signal"), &json!({"signal": signal})).await?;
        }
        None => {
            client.json(Method::DELETE, &path, None).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stead record build -o build.cast && asciinema play build.cast")]
pub(super) struct RecordArgs {
    #[command(flatten)]
    named: TerminalArgs,
    /// Output file (default: standard output)
    #[arg(short, long, value_name = "FILE")]
    output: Option<std::path::PathBuf>,
}

pub(super) async fn record(args: RecordArgs) -> anyhow::Result<ExitCode> {
    let (client, path) = args.named.path().await?;
    let mut answer = client.send(Method::GET, &format!("{path}/recording"), None, &[]).await?;
    let mut file: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(
            std::fs::File::create(path)
                .with_context(|| format!("cannot write {}", path.display()))?,
        ),
        None => Box::new(io::stdout()),
    };
    while let Some(piece) = answer.chunk().await? {
        file.write_all(&piece)?;
    }
    file.flush()?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stead versions build --limit 10")]
pub(super) struct VersionsArgs {
    #[command(flatten)]
    named: TerminalArgs,
    /// Maximum number of versions
    #[arg(long, default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    form: ListArgs,
}

pub(super) async fn versions(args: VersionsArgs) -> anyhow::Result<ExitCode> {
    let (client, path) = args.named.path().await?;
    let path = format!("{path}/versions");
    let columns = [
        ("version", "/version"),
        ("at", "/at"),
        ("cause", "/cause"),
        ("cwd", "/cwd"),
        ("changed", "/changed"),
    ];
    args.form.show_path(Table::new(&columns), &client, &path, args.limit.max(1)).await?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
#[command(
    allow_missing_positional = true,
    after_help = "Examples:\n  stead rollback build 12\n  stead rollback -t build 12"
)]
pub(super) struct RollbackArgs {
    #[command(flatten)]
    named: FirstTerminalArgs,
    /// Version to restore
    version: u64,
    #[command(flatten)]
    form: PrintArgs,
}

pub(super) async fn rollback(args: RollbackArgs) -> anyhow::Result<ExitCode> {
    let (client, path) = args.named.path().await?;
    let body = json!({"version": args.version});
    args.form.one(&client.post(&format!("{path}/rollback"), &body).await?)?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stead fork build --version 12")]
pub(super) struct ForkArgs {
    #[command(flatten)]
    named: TerminalArgs,
    /// Version to start from (default: the latest)
    #[arg(long)]
    version: Option<u64>,
    #[command(flatten)]
    form: PrintArgs,
}

pub(super) async fn fork(args: ForkArgs) -> anyhow::Result<ExitCode> {
    let (client, path) = args.named.path().await?;
    let body = args.version.map_or(json!({}), |version| json!({"version": version}));
    args.form.one(&client.post(&format!("{path}/fork"), &body).await?)?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Subcommand)]
pub(super) enum TerminalVerb {
    /// List terminals
    #[command(after_help = "Example:\n  stead terminal ls --json")]
    Ls(LsArgs),
    /// Show a terminal
    #[command(after_help = "Example:\n  stead terminal show build")]
    Show {
        #[command(flatten)]
        named: TerminalArgs,
        #[command(flatten)]
        form: PrintArgs,
    },
    /// Set or unset environment variables of its shell
    #[command(after_help = "Example:\n  stead terminal env build -s A=1 -s B=2 -u C")]
    Env {
        #[command(flatten)]
        named: TerminalArgs,
        /// Set a variable
        #[arg(short, long, value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Unset a variable
        #[arg(short, long, value_name = "KEY")]
        unset: Vec<String>,
    },
    /// Close a terminal and delete it
    #[command(after_help = "Example:\n  stead terminal rm term_0198…")]
    Rm(KillArgs),
}

pub(super) async fn terminals(verb: TerminalVerb) -> anyhow::Result<ExitCode> {
    match verb {
        TerminalVerb::Ls(args) => return ls(args).await,
        TerminalVerb::Rm(args) => return kill(args).await,
        TerminalVerb::Show { named, form } => {
            let (client, path) = named.path().await?;
            form.one(&client.get(&path).await?)?;
        }
        TerminalVerb::Env { named, set, unset } => {
            let (client, path) = named.path_or(IfMissing::Fail).await?;
            let body = json!({"set": names::pairs(&set)?, "unset": unset});
            client.json(Method::PATCH, &format!("{path}/env"), Some(&body)).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn out(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_those_at_the_end() {
        let check = |lines: u32, expected: &str| {
            assert_eq!(last_lines(b"one\n\nthree", lines), expected.as_bytes(), "{lines}");
        };
        check(0, "");
        check(1, "three");
        check(2, "\nthree");
        check(3, "one\n\nthree");
        check(9, "one\n\nthree");
    }
}
