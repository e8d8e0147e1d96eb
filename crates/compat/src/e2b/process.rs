//! The process service: start, connect, list, feed, resize, signal.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{extract::State, http::HeaderMap, response::Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    address::E2bGuest,
    connect::{self, ConnectCode, Failed, Messages, ResponseStream, Unary},
};
use adapter::Adapter;
use adapter::{
    build::CWD,
    instance::{absolute, relative},
    interpreter::is_context,
    process::{ProcessEnd, ProcessOutput, SandboxProcess, Start},
    wrap::Config,
};
use store::SandboxRecord;

/// Pieces of output that wait for the client; the program does not.
const WAITING: usize = 8;

/// What is to be started, as a message.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StartRequest {
    process: ProcessConfig,
    pty: Option<PtyRequest>,
    tag: Option<String>,
    stdin: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct ProcessConfig {
    cmd: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    envs: BTreeMap<String, String>,
    cwd: Option<String>,
}

#[derive(Debug, Deserialize)]
struct PtyRequest {
    size: Option<PtyRequestSize>,
}

#[derive(Debug, Deserialize)]
struct PtyRequestSize {
    #[serde(default)]
    cols: u32,
    #[serde(default)]
    rows: u32,
}

impl PtyRequest {
    fn size(&self) -> (u16, u16) {
        let side = |given: u32, usual: u16| match u16::try_from(given) {
            Ok(0) | Err(_) => usual,
            Ok(given) => given,
        };
        match &self.size {
            Some(size) => (side(size.cols, 80), side(size.rows, 24)),
            None => (80, 24),
        }
    }
}

/// Which process is meant.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Selector {
    pid: Option<u32>,
    tag: Option<String>,
}

impl Selector {
    async fn running(
        &self,
        app: &Adapter,
        sandbox: &SandboxRecord,
    ) -> Result<Arc<SandboxProcess>, Failed> {
        let processes = app.processes(sandbox).await?;
        processes.running(self.pid, self.tag.as_deref()).ok_or_else(|| self.missing())
    }

    fn missing(&self) -> Failed {
        let message = match (&self.pid, &self.tag) {
            (Some(pid), _) => format!("process with pid {pid} not found"),
            (None, Some(tag)) => format!("process with tag {tag} not found"),
            (None, None) => "no process is named".to_owned(),
        };
        Failed::new(ConnectCode::NotFound, message)
    }
}

/// A message that only names a process.
#[derive(Debug, Deserialize)]
pub(super) struct ProcessSelectorRequest {
    process: Selector,
}

#[derive(Debug, Deserialize)]
pub(super) struct Empty {}

/// Starts a program and sends its output.
pub(super) async fn start(
    State(app): State<Adapter>,
    guest: E2bGuest,
    headers: HeaderMap,
    messages: Messages,
) -> Response {
    let request = match messages.only::<StartRequest>().await {
        Ok(request) => request,
        Err(failed) => return connect::refused(&failed),
    };
    match begin(&app, &guest, &headers, request).await {
        Ok(process) => follow(app, process, &headers),
        Err(failed) => connect::refused(&failed),
    }
}

async fn begin(
    app: &Adapter,
    guest: &E2bGuest,
    headers: &HeaderMap,
    request: StartRequest,
) -> Result<Arc<SandboxProcess>, Failed> {
    let sandbox = &guest.sandbox;
    let home = guest.home()?;
    let StartRequest { process, pty, tag, stdin } = request;
    let invalid = |message: &str| Failed::new(ConnectCode::InvalidArgument, message);
    if process.cmd.is_empty() {
        return Err(invalid("no program is named"));
    }
    let words = process.args.iter().chain([&process.cmd]);
    if words.chain(process.envs.values()).any(|word| word.contains('\0')) {
        return Err(invalid("neither words nor variables may contain NUL"));
    }
    let is_name = |name: &String| {
        let mut letters = name.bytes();
        letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
            && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
    };
    if let Some(name) = process.envs.keys().find(|name| !is_name(name)) {
        return Err(invalid(&format!("{name:?} is not the name of a variable")));
    }
    // The template's directory by default.
    let usual = sandbox.row.extra.get(CWD).map_or("", String::as_str);
    let cwd = process.cwd.as_deref().filter(|cwd| !cwd.is_empty()).unwrap_or(usual);
    let cwd = absolute(cwd, home);
    let files = app.sandbox_files(sandbox).await?;
    let path = cwd.clone();
    let found = files.act(move |directory| directory.stat_followed(&relative(&path)?)).await;
    if !found.is_ok_and(|found| found.kind == files::FileKind::Directory) {
        return Err(invalid(&format!("cwd '{cwd}' does not exist")));
    }
    let mut envs = guest.environment();
    envs.extend(process.envs);
    let start = Start {
        config: Config { cmd: process.cmd, args: process.args, envs, cwd: Some(cwd) },
        tag,
        stdin: stdin.unwrap_or(true),
        timeout: connect::timeout(headers),
        pty: pty.as_ref().map(PtyRequest::size),
    };
    Ok(app.start_process(sandbox, start).await?)
}

/// Tells what a program that runs says, from its beginning.
pub(super) async fn connect(
    State(app): State<Adapter>,
    guest: E2bGuest,
    headers: HeaderMap,
    messages: Messages,
) -> Response {
    let found = async {
        let ProcessSelectorRequest { process } = messages.only().await?;
        let processes = app.processes(&guest.sandbox).await?;
        let found = processes.find(process.pid, process.tag.as_deref());
        found.ok_or_else(|| process.missing())
    };
    match found.await {
        Ok(process) => follow(app, process, &headers),
        Err(failed) => connect::refused(&failed),
    }
}

fn follow(app: Adapter, process: Arc<SandboxProcess>, headers: &HeaderMap) -> Response {
    let (answer, response) = connect::stream();
    let (timeout, keepalive) = (connect::timeout(headers), connect::keepalive(headers));
    let tasks = app.tasks.clone();
    tasks.spawn(async move {
        let deadline = async {
            match timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            ended = tell(&app, &process, &answer, keepalive) => ended,
            () = answer.closed() => return,
            () = app.stopping.cancelled() => {
                Err(Failed::new(ConnectCode::Unavailable, "the server is stopping; the process goes on"))
            }
            () = deadline => {
                Err(Failed::new(ConnectCode::DeadlineExceeded, "context deadline exceeded"))
            }
        };
        let ended = match ended {
            Err(_) if is_gone(&app, &process).await => {
                let message = "the connection to the sandbox ended: the sandbox was not found";
                Err(Failed::new(ConnectCode::Unavailable, message))
            }
            ended => ended,
        };
        answer.end(ended).await;
    });
    response
}

/// Whether the sandbox of a program was deleted meanwhile.
async fn is_gone(app: &Adapter, process: &SandboxProcess) -> bool {
    matches!(app.sandboxes.get(&process.terminal.thread_id).await, Ok(None))
}

/// Says what a program says, and between its words that it lives.
async fn tell(
    app: &Adapter,
    process: &SandboxProcess,
    answer: &ResponseStream,
    keepalive: Duration,
) -> Result<(), Failed> {
    let start = json!({"event": {"start": {"pid": process.pid}}});
    if !answer.say(&start).await {
        return Ok(());
    }
    let (sender, mut said) = mpsc::channel(WAITING);
    let hear = async {
        let heard = app.stream_until_closed(process, &sender).await;
        drop(sender);
        heard
    };
    let pass_on = async {
        loop {
            let message = match tokio::time::timeout(keepalive, said.recv()).await {
                Err(_) => json!({"keepalive": {}}),
                Ok(None) => return Ok(()),
                Ok(Some(ProcessOutput::Stdout(bytes))) => {
                    json!({"data": {"stdout": connect::encode(&bytes)}})
                }
                Ok(Some(ProcessOutput::Stderr(bytes))) => {
                    json!({"data": {"stderr": connect::encode(&bytes)}})
                }
                Ok(Some(ProcessOutput::Pty(bytes))) => {
                    json!({"data": {"pty": connect::encode(&bytes)}})
                }
                Ok(Some(ProcessOutput::End(ProcessEnd::TimedOut))) => {
                    let message = "context deadline exceeded";
                    return Err(Failed::new(ConnectCode::DeadlineExceeded, message));
                }
                Ok(Some(ProcessOutput::End(ProcessEnd::Lost))) => {
                    let message = "the process is gone, and nobody knows how it ended";
                    return Err(Failed::new(ConnectCode::Unavailable, message));
                }
                Ok(Some(ProcessOutput::End(end))) => json!({"end": ended(process.end_seen_by_parent(end))}),
            };
            if !answer.say(&json!({"event": message})).await {
                return Ok(());
            }
        }
    };
    let (heard, passed) = tokio::join!(hear, pass_on);
    passed?;
    heard?;
    Ok(())
}

/// How a program ended, as a message: what is zero is left out.
fn ended(end: ProcessEnd) -> Value {
    match end {
        ProcessEnd::Exit(0) => json!({"exited": true, "status": "exit status 0"}),
        ProcessEnd::Exit(code) => {
            let status = format!("exit status {code}");
            json!({"exitCode": code, "exited": true, "status": status, "error": status})
        }
        ProcessEnd::Signal(signal) => {
            let status = format!("signal: {}", signal_words(signal));
            json!({"exitCode": -1, "status": status, "error": status})
        }
        ProcessEnd::TimedOut | ProcessEnd::Lost => {
            let status = "the process is gone, and nobody knows how it ended";
            json!({"exitCode": -1, "status": status, "error": status})
        }
    }
}

fn signal_words(signal: i32) -> String {
    let words = match signal {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        5 => "trace/breakpoint trap",
        6 => "aborted",
        7 => "bus error",
        8 => "floating point exception",
        9 => "killed",
        10 => "user defined signal 1",
        11 => "segmentation fault",
        12 => "user defined signal 2",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        other => return format!("signal {other}"),
    };
    words.to_owned()
}

/// The programs that run.
pub(super) async fn list(
    State(app): State<Adapter>,
    guest: E2bGuest,
    Unary(Empty {}): Unary<Empty>,
) -> Result<axum::Json<Value>, Failed> {
    let processes = app.processes(&guest.sandbox).await?;
    let own = processes.all().into_iter().filter(|process| !is_context(process));
    let shown = own.map(|process| {
        let mut shown = json!({"config": process.config, "pid": process.pid});
        if let Some(tag) = &process.tag {
            shown["tag"] = tag.as_str().into();
        }
        shown
    });
    let shown: Vec<Value> = shown.collect();
    Ok(axum::Json(if shown.is_empty() { json!({}) } else { json!({"processes": shown}) }))
}

/// What a program is to read.
#[derive(Debug, Deserialize)]
struct ProcessInput {
    stdin: Option<String>,
    pty: Option<String>,
}

impl ProcessInput {
    async fn give(&self, app: &Adapter, process: &SandboxProcess) -> Result<(), Failed> {
        let data = match (&self.stdin, &self.pty) {
            (Some(data), None) if !process.is_pty() => data,
            (None, Some(data)) if process.is_pty() => data,
            (Some(_), None) => {
                return Err(Failed::new(
                    ConnectCode::FailedPrecondition,
                    "the process has a terminal",
                ));
            }
            (None, Some(_)) => {
                return Err(Failed::new(
                    ConnectCode::FailedPrecondition,
                    "the process has no terminal",
                ));
            }
            _ => return Err(Failed::new(ConnectCode::InvalidArgument, "there is no input")),
        };
        app.write_stdin(process, connect::decode(data)?).await?;
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct SendInput {
    process: Selector,
    input: ProcessInput,
}

/// Gives a program something to read.
pub(super) async fn send_input(
    State(app): State<Adapter>,
    guest: E2bGuest,
    Unary(request): Unary<SendInput>,
) -> Result<axum::Json<Value>, Failed> {
    let process = request.process.running(&app, &guest.sandbox).await?;
    request.input.give(&app, &process).await?;
    Ok(axum::Json(json!({})))
}

#[derive(Debug, Deserialize)]
struct StreamInput {
    start: Option<ProcessSelectorRequest>,
    data: Option<StreamData>,
}

#[derive(Debug, Deserialize)]
struct StreamData {
    input: ProcessInput,
}

/// Gives a program what comes, as it comes.
pub(super) async fn stream_input(
    State(app): State<Adapter>,
    guest: E2bGuest,
    mut messages: Messages,
) -> Response {
    let fed = async {
        let mut process = None;
        while let Some(StreamInput { start, data }) = messages.next().await? {
            if let Some(named) = start {
                process = Some(named.process.running(&app, &guest.sandbox).await?);
            }
            if let Some(data) = data {
                let process = process.as_ref();
                let process = process.ok_or_else(|| {
                    Failed::new(ConnectCode::InvalidArgument, "the first message names no process")
                })?;
                data.input.give(&app, process).await?;
            }
        }
        Ok::<_, Failed>(())
    };
    match fed.await {
        Err(failed) => connect::refused(&failed),
        Ok(()) => {
            let (answer, response) = connect::stream();
            answer.say(&json!({})).await;
            answer.end(Ok(())).await;
            response
        }
    }
}

/// Ends what a program can read.
pub(super) async fn close_stdin(
    State(app): State<Adapter>,
    guest: E2bGuest,
    Unary(request): Unary<ProcessSelectorRequest>,
) -> Result<axum::Json<Value>, Failed> {
    let process = request.process.running(&app, &guest.sandbox).await?;
    app.close_stdin(&process).await?;
    Ok(axum::Json(json!({})))
}

#[derive(Debug, Deserialize)]
pub(super) struct Update {
    process: Selector,
    pty: Option<PtyRequest>,
}

/// Gives a program's terminal another size.
pub(super) async fn update(
    State(app): State<Adapter>,
    guest: E2bGuest,
    Unary(request): Unary<Update>,
) -> Result<axum::Json<Value>, Failed> {
    let process = request.process.running(&app, &guest.sandbox).await?;
    if let Some(pty) = &request.pty
        && !app.resize_process(&process, pty.size()).await?
    {
        return Err(Failed::new(ConnectCode::FailedPrecondition, "the process has no terminal"));
    }
    Ok(axum::Json(json!({})))
}

#[derive(Debug, Deserialize)]
pub(super) struct SendSignal {
    process: Selector,
    signal: Option<Value>,
}

/// Sends a program a signal.
pub(super) async fn send_signal(
    State(app): State<Adapter>,
    guest: E2bGuest,
    Unary(request): Unary<SendSignal>,
) -> Result<axum::Json<Value>, Failed> {
    let signal = match &request.signal {
        Some(Value::String(name)) => match name.as_str() {
            "SIGNAL_SIGTERM" => Some(15),
            "SIGNAL_SIGKILL" => Some(9),
            _ => None,
        },
        Some(Value::Number(number)) => match number.as_i64() {
            Some(15) => Some(15),
            Some(9) => Some(9),
            _ => None,
        },
        _ => None,
    };
    let unknown = || Failed::new(ConnectCode::Unimplemented, "only SIGTERM and SIGKILL are sent");
    let signal = signal.ok_or_else(unknown)?;
    let process = request.process.running(&app, &guest.sandbox).await?;
    app.signal_process(&guest.sandbox, &process, signal).await?;
    Ok(axum::Json(json!({})))
}
