//! `stead attach`: a person's terminal on a terminal of the server.
//!
//! Output is counted by offset. When the connection breaks, the client says so, connects again and
//! asks for the bytes from where it was: nothing is lost and nothing comes twice. What is typed in
//! between is not sent: nobody could say whether it arrived.

use std::{
    io::{self, IsTerminal, Read, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
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
    client::{ApiClient, ApiError, WebSocket, ServerArgs, escape},
    keys::Keys,
    names,
    raw::{Raw, size},
};

/// Wait before the first attempt to connect again; it doubles up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// Ctrl-\, the detach key unless told otherwise.
pub(super) const DETACH: u8 = 0x1c;
/// How long the end of an escape sequence is waited for.
const HOLD: Duration = Duration::from_millis(50);
/// How long the server may take to read that the person leaves.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Attach to a terminal.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stead attach my-task\n  stead attach --create my-task\n  \
    stead attach term_0198… --viewer\n\n\
    Ctrl-\\ detaches, and so does the end of standard input (except with --viewer); the shell\n\
    keeps running.")]
pub(super) struct AttachArgs {
    /// A thread (its default terminal) or a terminal id
    #[arg(default_value = names::DEFAULT_THREAD)]
    name: String,
    /// Create the thread if it does not exist
    #[arg(long)]
    create: bool,
    /// Watch only
    #[arg(long)]
    viewer: bool,
    /// Take the keyboard from whoever has it
    #[arg(long, conflicts_with = "viewer")]
    take_over: bool,
    /// The control key that detaches, as in `\` or `]`
    #[arg(long, default_value = "\\", value_name = "KEY", value_parser = control_key)]
    detach_key: u8,
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

pub(super) async fn run(args: AttachArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let missing = if args.create { names::IfMissing::Make } else { names::IfMissing::Refuse };
    let name = &args.name;
    let terminal = names::terminal(&client, name, missing).await.map_err(|error| {
        match names::is_missing(&error) {
            true => anyhow!("no thread {name:?}; `stead attach --create {name}` creates it"),
            false => error,
        }
    })?;
    let role = match (args.viewer, args.take_over) {
        (true, _) => Role::Viewer,
        (false, true) => Role::TakeOver,
        (false, false) => Role::Driver,
    };
    attach(&client, &terminal, role, args.detach_key).await
}

/// What the person came for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Driver,
    TakeOver,
    Viewer,
}

/// Attaches until the person detaches or the terminal ends.
pub(super) async fn attach(
    client: &ApiClient,
    terminal: &str,
    role: Role,
    detach: u8,
) -> anyhow::Result<ExitCode> {
    let key = char::from(detach | 0x40);
    // The first connection is made before raw mode, so that a refusal reads like any other.
    let socket = connect(client, terminal, role, None).await?;
    if io::stderr().is_terminal() {
        eprintln!("attached to {terminal}; Ctrl-{key} detaches");
    }
    let raw = Raw::enter().context("cannot make this terminal raw")?;
    let mut session = Session {
        client,
        terminal,
        role,
        keys: Keys::new(detach),
        input: read_input(),
        resized: signal(SignalKind::window_change())?,
        ended: [signal(SignalKind::terminate())?, signal(SignalKind::hangup())?],
        offset: None,
        alt_screen: false,
        picture_comes: false,
        shown: false,
        drives: false,
        hold: None,
        input_open: true,
    };
    let ended = session.run(socket).await;
    drop(raw);
    match ended? {
        End::Detached => {
            eprintln!("\r\n[detached from {terminal}; it goes on]");
            Ok(ExitCode::SUCCESS)
        }
        End::Deleted => {
            eprintln!("\r\n[{terminal} is gone]");
            Ok(ExitCode::FAILURE)
        }
        End::Exited { code, signal } => {
            let said = match (&signal, code) {
                (Some(signal), _) => format!("ended by signal {signal}"),
                (None, code) => format!("exited with {code}"),
            };
            eprintln!("\r\n[{terminal} {said}]");
            Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
        }
    }
}

enum End {
    Detached,
    Deleted,
    Exited { code: i64, signal: Option<String> },
}

/// Why one connection ended.
enum Left {
    For(End),
    Lost,
}

struct Session<'a> {
    client: &'a ApiClient,
    terminal: &'a str,
    role: Role,
    keys: Keys,
    input: mpsc::Receiver<Vec<u8>>,
    resized: Signal,
    ended: [Signal; 2],
    /// Where the next output byte belongs; unknown before the first picture.
    offset: Option<u64>,
    alt_screen: bool,
    picture_comes: bool,
    /// Whether a picture was drawn.
    shown: bool,
    drives: bool,
    hold: Option<Instant>,
    input_open: bool,
}

async fn connect(
    client: &ApiClient,
    terminal: &str,
    role: Role,
    from: Option<u64>,
) -> anyhow::Result<WebSocket> {
    let mode = if role == Role::Viewer { "viewer" } else { "driver" };
    let mut path = format!("/api/terminals/{}/ws?mode={mode}", escape(terminal));
    if let Some(from) = from {
        path.push_str(&format!("&from={from}"));
    }
    client.websocket(&path).await
}

impl Session<'_> {
    async fn run(&mut self, first: WebSocket) -> anyhow::Result<End> {
        let mut socket = first;
        loop {
            match self.talk(&mut socket).await? {
                Left::For(end) => return Ok(end),
                Left::Lost => {}
            }
            self.say("connection lost, connecting again")?;
            match self.reconnect().await? {
                Ok(next) => socket = next,
                Err(end) => return Ok(end),
            }
            self.say("connected again")?;
        }
    }

    /// Tries until there is a connection or the person leaves.
    async fn reconnect(&mut self) -> anyhow::Result<Result<WebSocket, End>> {
        let mut wait = FIRST_WAIT;
        loop {
            if !self.input_open && self.role != Role::Viewer {
                return Ok(Err(End::Detached));
            }
            match connect(self.client, self.terminal, self.role, self.offset).await {
                Ok(socket) => return Ok(Ok(socket)),
                Err(error) => match error.downcast_ref::<ApiError>() {
                    Some(refusal) if refusal.status == 404 => return Ok(Err(End::Deleted)),
                    // A server that is starting or too busy says so; a wrong token stays wrong.
                    Some(refusal) if refusal.status.is_client_error() => return Err(error),
                    _ => {}
                },
            }
            let next = Instant::now() + wait;
            wait = (wait * 2).min(LONGEST_WAIT);
            loop {
                tokio::select! {
                    () = sleep_until(next) => break,
                    typed = self.input.recv(), if self.input_open => match typed {
                        Some(bytes) if self.keys.push(&bytes).detach => {
                            return Ok(Err(End::Detached));
                        }
                        Some(_) => write(b"\x07")?,
                        None => {
                            self.input_open = false;
                            break;
                        }
                    },
                    () = ended(&mut self.ended) => return Ok(Err(End::Detached)),
                }
            }
        }
    }

    /// One connection, to its end.
    async fn talk(&mut self, socket: &mut WebSocket) -> anyhow::Result<Left> {
        let again = self.offset.is_some();
        if self.role == Role::TakeOver && !send(socket, &json!({"type": "take_over"})).await {
            return Ok(Left::Lost);
        }
        if !self.send_size(socket, again).await {
            return Ok(Left::Lost);
        }
        loop {
            let hold = self.hold;
            let released = async move {
                match hold {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
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
                    Some(Err(_)) | None => return Ok(Left::Lost),
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
                    self.hold = self.keys.holds().then(|| Instant::now() + HOLD);
                    if !self.send_keys(socket, typed.keys).await {
                        return Ok(Left::Lost);
                    }
                    if typed.detach {
                        return Ok(self.leave(socket).await);
                    }
                }
                () = released => {
                    self.hold = None;
                    let keys = self.keys.release();
                    if !self.send_keys(socket, keys).await {
                        return Ok(Left::Lost);
                    }
                }
                _ = self.resized.recv() => {
                    if !self.send_size(socket, false).await {
                        return Ok(Left::Lost);
                    }
                }
                () = ended(&mut self.ended) => return Ok(Left::For(End::Detached)),
            }
        }
    }

    /// Whether nothing more can be typed and the picture was shown. A viewer came to watch.
    fn is_done(&self) -> bool {
        !self.input_open && self.role != Role::Viewer && self.shown && self.hold.is_none()
    }

    async fn leave(&self, socket: &mut WebSocket) -> Left {
        // What was typed is read by the server before the close; one that is stuck is not waited for.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, socket.close(None)).await;
        Left::For(End::Detached)
    }

    async fn send_keys(&self, socket: &mut WebSocket, keys: Vec<u8>) -> bool {
        if keys.is_empty() || self.role == Role::Viewer {
            return true;
        }
        socket.send(Message::binary(keys)).await.is_ok()
    }

    /// Says how large this terminal is. After a notice over a full-screen program, a size that
    /// differs for a moment makes it draw everything again.
    async fn send_size(&self, socket: &mut WebSocket, again: bool) -> bool {
        let Some((cols, rows)) = size().filter(|_| self.role != Role::Viewer) else {
            return true;
        };
        let resize = |rows: u16| json!({"type": "resize", "cols": cols, "rows": rows});
        if again && self.alt_screen && rows > 2 && !send(socket, &resize(rows - 1)).await {
            return false;
        }
        send(socket, &resize(rows)).await
    }

    fn message(&mut self, message: Message) -> anyhow::Result<Option<Left>> {
        match message {
            Message::Binary(bytes) if std::mem::take(&mut self.picture_comes) => {
                // The picture is drawn on an empty terminal: soft reset, main screen, clear.
                write(b"\x1b[!p\x1b[?1049l\x1b[m\x1b[2J\x1b[H")?;
                write(&bytes)?;
                self.shown = true;
                self.alt_screen = false;
                self.note_screen(&bytes);
                Ok(None)
            }
            Message::Binary(bytes) => {
                write(&bytes)?;
                self.offset = self.offset.map(|offset| offset + bytes.len() as u64);
                self.note_screen(&bytes);
                Ok(None)
            }
            Message::Text(text) => {
                let control: Value = serde_json::from_str(&text)
                    .context("the server sent something that is not JSON")?;
                self.control(&control)
            }
            Message::Close(Some(frame)) if frame.code == CloseCode::Policy => {
                bail!("the server closed the connection: {}", frame.reason)
            }
            Message::Close(_) => Ok(Some(Left::Lost)),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(None),
        }
    }

    fn control(&mut self, control: &Value) -> anyhow::Result<Option<Left>> {
        match control["type"].as_str().unwrap_or_default() {
            "hello" => {
                self.offset = control["offset"].as_u64().or(self.offset);
                self.drives = control["mode"] == "driver";
                if !self.drives && self.role != Role::Viewer {
                    self.say("somebody else has the keyboard; --take-over takes it")?;
                }
            }
            // The next binary frame is a picture; it does not count as output.
            "snapshot" => {
                self.offset = control["offset"].as_u64();
                self.picture_comes = true;
            }
            "error" => {
                let detail = control["detail"].as_str().unwrap_or("the server refused");
                self.say(detail)?;
            }
            "driver" => self.new_driver(control)?,
            "gap" => {
                self.offset = control["to"].as_u64().or(self.offset);
                self.say("output was dropped here")?;
            }
            "notice" => {
                let detail = control["detail"].as_str().or(control["text"].as_str());
                self.say(detail.unwrap_or("the server has something to say"))?;
            }
            "exit" => {
                let signal = match &control["signal"] {
                    Value::Null => None,
                    Value::String(name) => Some(name.clone()),
                    other => Some(other.to_string()),
                };
                let code = control["code"].as_i64().unwrap_or(1);
                return Ok(Some(Left::For(End::Exited { code, signal })));
            }
            // Titles reach this terminal in the output itself; sizes are the driver's choice.
            _ => {}
        }
        Ok(None)
    }

    /// Says when the keyboard came or went.
    fn new_driver(&mut self, control: &Value) -> anyhow::Result<()> {
        let drives = control["mode"] == "driver";
        if drives != self.drives && self.role != Role::Viewer {
            self.say(if drives { "you have the keyboard" } else { "the keyboard was taken" })?;
        }
        self.drives = drives;
        Ok(())
    }

    /// Follows which screen the program is on, as well as the output in one piece shows it.
    fn note_screen(&mut self, bytes: &[u8]) {
        for window in bytes.windows(8) {
            match window {
                b"\x1b[?1049h" => self.alt_screen = true,
                b"\x1b[?1049l" => self.alt_screen = false,
                _ => {}
            }
        }
    }

    /// Tells the person something without being taken for output.
    fn say(&self, words: &str) -> anyhow::Result<()> {
        if !io::stdout().is_terminal() {
            eprintln!("stead: {words}");
            return Ok(());
        }
        let words: String = words.chars().filter(|c| !c.is_control()).collect();
        match size().filter(|_| self.alt_screen) {
            // Over a full-screen program: the last row, the cursor put back.
            Some((_, rows)) => {
                write(format!("\x1b7\x1b[{rows};1H\x1b[7m[stead: {words}]\x1b[m\x1b8").as_bytes())
            }
            None => write(format!("\r\n\x1b[7m[stead: {words}]\x1b[m\r\n").as_bytes()),
        }
    }
}

/// Waits for a signal that ends us.
async fn ended([terminate, hangup]: &mut [Signal; 2]) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

async fn send(socket: &mut WebSocket, control: &Value) -> bool {
    socket.send(Message::text(control.to_string())).await.is_ok()
}

/// The bytes of a frame that carries text or base64.
pub(super) fn data(value: &Value) -> anyhow::Result<Vec<u8>> {
    if let Some(text) = value["data"].as_str() {
        return Ok(text.as_bytes().to_vec());
    }
    match value["data_base64"].as_str() {
        Some(text) => STANDARD.decode(text).context("the server sent broken base64"),
        None => Ok(Vec::new()),
    }
}

fn write(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).context("cannot write to this terminal")
}

/// Reads standard input on a thread of its own: reading a terminal cannot be cancelled.
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
