//! `stead attach`: connects the user's terminal to a terminal of the server.
//!
//! Output is counted by offset. When the connection is lost, the client reconnects and requests the bytes
//! from its offset: no output is lost or repeated. Keys typed in between are dropped, because the client
//! cannot know whether they arrived.

use std::{
    io::{self, IsTerminal, Read, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_tungstenite::tungstenite::{Message, protocol::frame::coding::CloseCode};

use super::{
    alt_screen::AltScreen,
    client::{ApiClient, ApiError, ServerArgs, WebSocket, escape},
    exec,
    keys::KeyFilter,
    names,
    raw::{RawMode, size},
    show::{plain, start_of},
};
use base::backoff::Backoff;

/// The waits between attempts to reconnect.
const RETRY: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
/// Ctrl-\, the default detach key.
pub(super) const DETACH: u8 = 0x1c;
/// Ctrl-^, the default key that shows the status.
pub(super) const STATUS: u8 = 0x1e;
/// How long the server may take to answer what the status is.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a notice stays over a full-screen program.
const NOTICE_DURATION: Duration = Duration::from_secs(4);
/// How long to wait for the rest of an escape sequence.
const SEQUENCE_TIMEOUT: Duration = Duration::from_millis(50);
/// How long the server may take to close the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stead attach my-task\n  stead attach --create my-task\n  \
    stead attach term_0198… --viewer\n\n\
    Ctrl-\\ detaches, and so does the end of standard input (except with --viewer); the shell\n\
    keeps running. Ctrl-^ shows what the thread does and who has control.\n\n\
    Exit status: that of the terminal's program; 0 after detaching, 125 if there is no result.")]
pub(super) struct AttachArgs {
    /// Terminal id, or thread or sandbox for its default terminal
    #[arg(default_value = names::DEFAULT_THREAD)]
    name: String,
    /// The same as NAME
    #[arg(short, long, visible_alias = "thread", value_name = "NAME", conflicts_with = "name")]
    terminal: Option<String>,
    /// Create the thread if it does not exist
    #[arg(long)]
    create: bool,
    /// View only
    #[arg(long)]
    viewer: bool,
    /// Take control from the current user
    #[arg(long, conflicts_with = "viewer")]
    take_over: bool,
    /// Key that detaches together with Ctrl, such as `\` or `]`
    #[arg(long, default_value = "\\", value_name = "KEY", value_parser = control_key)]
    detach_key: u8,
    /// Key that shows the status together with Ctrl; `none` for no key
    #[arg(long, default_value = "^", value_name = "KEY", value_parser = status_key)]
    status_key: StatusKey,
    #[command(flatten)]
    target: ServerArgs,
}

fn control_key(text: &str) -> Result<u8, String> {
    let key = text.trim_start_matches("ctrl-").trim_start_matches("Ctrl-").trim_start_matches('^');
    let key = if text == "^" { "^" } else { key };
    match key.as_bytes() {
        [byte @ (b'@'..=b'_' | b'a'..=b'z')] if *byte != b'[' => Ok(byte & 0x1f),
        _ => Err("expected one letter or one of \\ ] ^ _ @".into()),
    }
}

/// The key that shows the status, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StatusKey(Option<u8>);

fn status_key(text: &str) -> Result<StatusKey, String> {
    if text == "none" {
        return Ok(StatusKey(None));
    }
    control_key(text).map(|key| StatusKey(Some(key)))
}

/// Attaches. Our own failures have an exit status that is not the program's.
pub(super) async fn run(args: AttachArgs) -> anyhow::Result<ExitCode> {
    exec::report(find_and_attach(args).await)
}

async fn find_and_attach(args: AttachArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let missing = if args.create { names::IfMissing::Create } else { names::IfMissing::Prefix };
    let name = args.terminal.as_ref().unwrap_or(&args.name);
    let terminal = names::terminal(&client, name, missing).await.map_err(|error| {
        match names::is_missing(&error) {
            true => anyhow!("no thread {name:?}; `stead attach --create {name}` creates it"),
            false => error,
        }
    })?;
    let role = match (args.viewer, args.take_over) {
        (true, _) => AttachRole::Viewer,
        (false, true) => AttachRole::TakeOver,
        (false, false) => AttachRole::Driver,
    };
    attach(&client, &terminal, role, (args.detach_key, args.status_key.0)).await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttachRole {
    Driver,
    TakeOver,
    Viewer,
}

/// Attaches until the user detaches or the terminal's program ends.
pub(super) async fn attach(
    client: &ApiClient,
    terminal: &str,
    role: AttachRole,
    (detach, status): (u8, Option<u8>),
) -> anyhow::Result<ExitCode> {
    let key = char::from(detach | 0x40);
    // Connect before raw mode, so that an error is printed like any other.
    let socket = connect(client, terminal, role, None).await?;
    if io::stderr().is_terminal() {
        let shows = status.map(|key| format!(", Ctrl-{} shows the status", char::from(key | 0x40)));
        eprintln!("[attached to {terminal}; Ctrl-{key} detaches{}]", shows.unwrap_or_default());
    }
    let raw = RawMode::enter().context("cannot set this terminal to raw mode")?;
    let mut session = AttachSession {
        client,
        terminal,
        role,
        keys: KeyFilter::new(detach, status),
        input: read_input(),
        resized: signal(SignalKind::window_change())?,
        ended: [signal(SignalKind::terminate())?, signal(SignalKind::hangup())?],
        offset: None,
        alt_screen: AltScreen::default(),
        redraw_at: None,
        expects_snapshot: false,
        has_drawn: false,
        has_control: false,
        sequence_deadline: None,
        input_open: true,
    };
    let ended = session.run(socket).await;
    drop(raw);
    match ended? {
        AttachEnd::Detached => {
            eprintln!("\r\n[detached; the shell keeps running]");
            Ok(ExitCode::SUCCESS)
        }
        AttachEnd::Deleted => {
            eprintln!("\r\n[{terminal} was deleted]");
            Ok(ExitCode::from(exec::NO_RESULT))
        }
        AttachEnd::Exited { code, signal } => {
            let how = match (&signal, code) {
                (Some(signal), _) => format!("was killed by signal {signal}"),
                (None, code) => format!("exited with status {code}"),
            };
            eprintln!("\r\n[{terminal} {how}]");
            Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
        }
    }
}

enum AttachEnd {
    Detached,
    Deleted,
    Exited { code: i64, signal: Option<String> },
}

enum Disconnect {
    End(AttachEnd),
    Lost,
}

struct AttachSession<'a> {
    client: &'a ApiClient,
    terminal: &'a str,
    role: AttachRole,
    keys: KeyFilter,
    input: mpsc::Receiver<Vec<u8>>,
    resized: Signal,
    ended: [Signal; 2],
    /// The offset of the next output byte; unknown before the first snapshot.
    offset: Option<u64>,
    alt_screen: AltScreen,
    /// When a full-screen program redraws what a notice covers.
    redraw_at: Option<Instant>,
    expects_snapshot: bool,
    /// Whether a snapshot was drawn.
    has_drawn: bool,
    has_control: bool,
    /// When an incomplete escape sequence is sent as it is.
    sequence_deadline: Option<Instant>,
    input_open: bool,
}

async fn connect(
    client: &ApiClient,
    terminal: &str,
    role: AttachRole,
    from: Option<u64>,
) -> anyhow::Result<WebSocket> {
    let mode = if role == AttachRole::Viewer { "viewer" } else { "driver" };
    let mut path = format!("/api/terminals/{}/ws?mode={mode}", escape(terminal));
    if let Some(from) = from {
        path.push_str(&format!("&from={from}"));
    }
    client.websocket(&path).await
}

impl AttachSession<'_> {
    async fn run(&mut self, first: WebSocket) -> anyhow::Result<AttachEnd> {
        let mut socket = first;
        loop {
            match self.serve(&mut socket).await? {
                Disconnect::End(end) => return Ok(end),
                Disconnect::Lost => {}
            }
            self.notify("connection lost, reconnecting…")?;
            match self.reconnect().await? {
                Ok(next) => socket = next,
                Err(end) => return Ok(end),
            }
            self.notify("reconnected")?;
        }
    }

    /// Retries until there is a connection or the user detaches.
    async fn reconnect(&mut self) -> anyhow::Result<Result<WebSocket, AttachEnd>> {
        let mut backoff = RETRY;
        loop {
            if !self.input_open && self.role != AttachRole::Viewer {
                return Ok(Err(AttachEnd::Detached));
            }
            match connect(self.client, self.terminal, self.role, self.offset).await {
                Ok(socket) => return Ok(Ok(socket)),
                Err(error) => match error.downcast_ref::<ApiError>() {
                    Some(refusal) if refusal.status == 404 => return Ok(Err(AttachEnd::Deleted)),
                    // A server that is starting or overloaded answers 503; a wrong token stays wrong.
                    Some(refusal) if refusal.status.is_client_error() => return Err(error),
                    _ => {}
                },
            }
            let next = Instant::now() + backoff.next_wait();
            loop {
                tokio::select! {
                    () = sleep_until(next) => break,
                    typed = self.input.recv(), if self.input_open => match typed {
                        Some(bytes) if self.keys.push(&bytes).detach => {
                            return Ok(Err(AttachEnd::Detached));
                        }
                        Some(_) => write(b"\x07")?,
                        None => {
                            self.input_open = false;
                            break;
                        }
                    },
                    () = ended(&mut self.ended) => return Ok(Err(AttachEnd::Detached)),
                }
            }
        }
    }

    /// Serves one connection to its end.
    async fn serve(&mut self, socket: &mut WebSocket) -> anyhow::Result<Disconnect> {
        let again = self.offset.is_some();
        if self.role == AttachRole::TakeOver && !send(socket, &json!({"type": "take_over"})).await {
            return Ok(Disconnect::Lost);
        }
        if !self.send_size(socket, again).await {
            return Ok(Disconnect::Lost);
        }
        loop {
            let deadline = self.sequence_deadline;
            let redraw_at = self.redraw_at;
            tokio::select! {
                message = socket.next() => match message {
                    Some(Ok(message)) => {
                        if let Some(left) = self.message(message)? {
                            return Ok(left);
                        }
                        if self.is_done() {
                            return Ok(self.leave(socket).await);
                        }
                    }
                    Some(Err(_)) | None => return Ok(Disconnect::Lost),
                },
                typed = self.input.recv(), if self.input_open => {
                    let Some(bytes) = typed else {
                        self.input_open = false;
                        if self.is_done() {
                            return Ok(self.leave(socket).await);
                        }
                        continue;
                    };
                    let typed = self.keys.push(&bytes);
                    self.sequence_deadline = self.keys.holds().then(|| Instant::now() + SEQUENCE_TIMEOUT);
                    if !self.send_keys(socket, typed.keys).await {
                        return Ok(Disconnect::Lost);
                    }
                    if typed.detach {
                        return Ok(self.leave(socket).await);
                    }
                    if typed.status {
                        let status = self.status().await;
                        self.notify(&status)?;
                    }
                }
                () = reached(redraw_at) => {
                    self.redraw_at = None;
                    if !self.send_size(socket, true).await {
                        return Ok(Disconnect::Lost);
                    }
                }
                () = reached(deadline) => {
                    self.sequence_deadline = None;
                    let keys = self.keys.release();
                    if !self.send_keys(socket, keys).await {
                        return Ok(Disconnect::Lost);
                    }
                }
                _ = self.resized.recv() => {
                    if !self.send_size(socket, false).await {
                        return Ok(Disconnect::Lost);
                    }
                }
                () = ended(&mut self.ended) => return Ok(Disconnect::End(AttachEnd::Detached)),
            }
        }
    }

    /// Whether the input has ended and the screen was drawn. A viewer keeps watching.
    fn is_done(&self) -> bool {
        !self.input_open
            && self.role != AttachRole::Viewer
            && self.has_drawn
            && self.sequence_deadline.is_none()
    }

    async fn leave(&self, socket: &mut WebSocket) -> Disconnect {
        // The server reads all input before the close frame; do not wait for one that is stuck.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, socket.close(None)).await;
        Disconnect::End(AttachEnd::Detached)
    }

    async fn send_keys(&self, socket: &mut WebSocket, keys: Vec<u8>) -> bool {
        if keys.is_empty() || self.role == AttachRole::Viewer {
            return true;
        }
        socket.send(Message::binary(keys)).await.is_ok()
    }

    /// Sends the size of this terminal. After a notice was drawn over a full-screen program, a size that differs
    /// for a moment makes the program redraw everything.
    async fn send_size(&self, socket: &mut WebSocket, again: bool) -> bool {
        let Some((cols, rows)) = size().filter(|_| self.role != AttachRole::Viewer) else {
            return true;
        };
        let resize = |rows: u16| json!({"type": "resize", "cols": cols, "rows": rows});
        if again && self.alt_screen.is_on && rows > 2 && !send(socket, &resize(rows - 1)).await {
            return false;
        }
        send(socket, &resize(rows)).await
    }

    fn message(&mut self, message: Message) -> anyhow::Result<Option<Disconnect>> {
        match message {
            Message::Binary(bytes) if std::mem::take(&mut self.expects_snapshot) => {
                // A snapshot is drawn on an empty terminal: soft reset, main screen, clear.
                write(b"\x1b[!p\x1b[?1049l\x1b[m\x1b[2J\x1b[H")?;
                write(&bytes)?;
                self.has_drawn = true;
                self.alt_screen = AltScreen::default();
                self.alt_screen.push(&bytes);
                Ok(None)
            }
            Message::Binary(bytes) => {
                write(&bytes)?;
                self.offset = self.offset.map(|offset| offset + bytes.len() as u64);
                self.alt_screen.push(&bytes);
                Ok(None)
            }
            Message::Text(text) => {
                let control: Value = serde_json::from_str(&text)
                    .context("the server sent a message that is not JSON")?;
                self.control(&control)
            }
            Message::Close(Some(frame)) if frame.code == CloseCode::Policy => {
                bail!("the server closed the connection: {}", frame.reason)
            }
            Message::Close(_) => Ok(Some(Disconnect::Lost)),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(None),
        }
    }

    fn control(&mut self, control: &Value) -> anyhow::Result<Option<Disconnect>> {
        match control["type"].as_str().unwrap_or_default() {
            "hello" => {
                self.offset = control["offset"].as_u64().or(self.offset);
                self.has_control = control["mode"] == "driver";
                if !self.has_control && self.role != AttachRole::Viewer {
                    self.notify("view only: another user has control; --take-over takes it")?;
                }
            }
            // The next binary frame is a snapshot, which does not count as output.
            "snapshot" => {
                self.offset = control["offset"].as_u64();
                self.expects_snapshot = true;
            }
            "error" => {
                let detail = control["detail"].as_str().unwrap_or("the server refused a request");
                self.notify(detail)?;
            }
            "driver" => self.control_changed(control)?,
            "gap" => {
                self.offset = control["to"].as_u64().or(self.offset);
                self.notify("some output is missing here")?;
            }
            "notice" => {
                let detail = control["detail"].as_str().or(control["text"].as_str());
                self.notify(detail.unwrap_or("notice from the server"))?;
            }
            "exit" => {
                let signal = match &control["signal"] {
                    Value::Null => None,
                    Value::String(name) => Some(name.clone()),
                    other => Some(other.to_string()),
                };
                let code = control["code"].as_i64().unwrap_or(1);
                return Ok(Some(Disconnect::End(AttachEnd::Exited { code, signal })));
            }
            // Titles are part of the output; sizes are chosen by the user who has control.
            _ => {}
        }
        Ok(None)
    }

    /// Notifies the user that control was gained or lost.
    fn control_changed(&mut self, control: &Value) -> anyhow::Result<()> {
        let has_control = control["mode"] == "driver";
        if has_control != self.has_control && self.role != AttachRole::Viewer {
            self.notify(if has_control {
                "you have control"
            } else {
                "view only: another user took control"
            })?;
        }
        self.has_control = has_control;
        Ok(())
    }

    /// Describes what the thread does and who has control.
    async fn status(&self) -> String {
        let asked = tokio::time::timeout(STATUS_TIMEOUT, async {
            let terminal = format!("/api/terminals/{}", escape(self.terminal));
            let thread = names::id(&self.client.get(&terminal).await?, "thread_id")?;
            self.client.get(&format!("/api/threads/{}", escape(&thread))).await
        });
        let thread = match asked.await {
            Ok(Ok(thread)) => thread,
            Ok(Err(error)) => return format!("no status: {error:#}"),
            Err(_) => return "no status: the server does not answer".to_owned(),
        };
        status_line(&thread, self.has_control)
    }

    /// Shows a notice that cannot be mistaken for output.
    fn notify(&mut self, text: &str) -> anyhow::Result<()> {
        if !io::stdout().is_terminal() {
            eprintln!("stead: {text}");
            return Ok(());
        }
        let text: String = text.chars().filter(|c| !c.is_control()).collect();
        match size().filter(|_| self.alt_screen.is_on) {
            // Over a full-screen program: in the last row, without moving the cursor.
            Some((columns, rows)) => {
                // A longer text would scroll the program's screen.
                let text = start_of(&text, usize::from(columns).saturating_sub(10));
                self.redraw_at = Some(Instant::now() + NOTICE_DURATION);
                write(format!("\x1b7\x1b[{rows};1H\x1b[7m[stead: {text}]\x1b[m\x1b8").as_bytes())
            }
            None => write(format!("\r\n\x1b[7m[stead: {text}]\x1b[m\r\n").as_bytes()),
        }
    }
}

/// Describes a thread in one line.
fn status_line(thread: &Value, has_control: bool) -> String {
    let last = &thread["last_command"];
    let command = plain(&last["command"]);
    let does = match (last["running"].as_bool(), last["waiting_for_input"].as_bool()) {
        (Some(true), Some(true)) => format!("waiting for input: {command}"),
        (Some(true), _) => format!("running: {command} (started {})", plain(&last["started_at"])),
        (Some(false), _) => match last["exit_code"].as_i64() {
            Some(code) => format!("idle, exit {code}: {command}"),
            None => format!("idle, {}: {command}", plain(&last["status"])),
        },
        (None, _) => "idle".to_owned(),
    };
    let control = match (has_control, thread["driver"].as_str()) {
        (true, _) => "you have control".to_owned(),
        (false, Some(driver)) => format!("{driver} has control"),
        (false, None) => "view only".to_owned(),
    };
    let open = match thread["open_handoffs"].as_u64() {
        None | Some(0) => String::new(),
        Some(1) => " · 1 open request".to_owned(),
        Some(count) => format!(" · {count} open requests"),
    };
    format!("{} · {does} · {control}{open}", plain(&thread["thread_id"]))
}

/// Waits until a time; without one, until it is dropped.
async fn reached(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Waits for SIGTERM or SIGHUP.
async fn ended([terminate, hangup]: &mut [Signal; 2]) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

async fn send(socket: &mut WebSocket, control: &Value) -> bool {
    socket.send(Message::text(control.to_string())).await.is_ok()
}

fn write(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).context("cannot write to this terminal")
}

/// Reads standard input on its own thread, because reading a terminal cannot be cancelled.
fn read_input() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        let (mut stdin, mut buffer) = (io::stdin().lock(), vec![0; 4096]);
        loop {
            match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    if sender.blocking_send(buffer[..count].to_vec()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_says_what_runs_and_who_has_control() {
        let thread =
            |last: Value| json!({"thread_id": "build", "driver": "ada", "last_command": last});
        let check = |last: Value, has_control: bool, wanted: &str| {
            assert_eq!(status_line(&thread(last), has_control), wanted);
        };
        let waits = json!({"command": "sudo x", "running": true, "waiting_for_input": true});
        check(waits, true, "build · waiting for input: sudo x · you have control");
        let failed = json!({"command": "make", "running": false, "exit_code": 2});
        check(failed, false, "build · idle, exit 2: make · ada has control");
        check(Value::Null, true, "build · idle · you have control");
        assert_eq!(status_key("none"), Ok(StatusKey(None)));
        assert_eq!(status_key("^"), Ok(StatusKey(Some(STATUS))));
    }

    #[test]
    fn a_detach_key_is_one_control_key() {
        assert_eq!(control_key("\\"), Ok(0x1c));
        assert_eq!(control_key("ctrl-]"), Ok(0x1d));
        assert_eq!(control_key("^a"), Ok(1));
        assert_eq!(control_key("^"), Ok(0x1e));
        for bad in ["", "[", "ab", "1", "é"] {
            assert!(control_key(bad).is_err(), "{bad}");
        }
    }
}
