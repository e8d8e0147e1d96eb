//! Programs in a pod, over WebSockets: each message begins with the number of its channel.
//!
//! An input cannot be ended without ending the program's output, too. So a program that reads a file is given its size
//! first, and reads no further.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::StatusCode;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::client::VENDOR;
use crate::http::{UploadProgress, VendorFault};
use crate::pipe::Channel;
use crate::vendor::Executed;
use crate::websocket::WebSocket;

/// How often we ping, and how long the other end may be silent.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of input bytes per message.
const MAX_MESSAGE_BYTES: usize = 32 << 10;
/// Chunks queued in each direction.
const MAX_QUEUED_CHUNKS: usize = 16;
/// The maximum number of bytes that a command prints to each of its outputs.
const MAX_OUTPUT_BYTES: usize = 64 << 20;
/// How long the result may take to arrive after the command's own time limit.
const RESULT_TIMEOUT: Duration = Duration::from_secs(30);

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;

/// A message from a program.
#[derive(Debug, PartialEq, Eq)]
enum ExecMessage {
    Stdout(Bytes),
    Stderr(Bytes),
    /// The program has ended, and how.
    Status(Bytes),
}

fn framed(bytes: &[u8]) -> Message {
    let mut frame = Vec::with_capacity(bytes.len() + 1);
    frame.push(STDIN);
    frame.extend_from_slice(bytes);
    Message::Binary(frame.into())
}

/// Parses a message. `None` if it is empty, as the first of each channel is, or of another channel.
fn parse(mut frame: Bytes) -> Option<ExecMessage> {
    if frame.len() < 2 {
        return None;
    }
    let channel = frame.split_to(1)[0];
    match channel {
        STDOUT => Some(ExecMessage::Stdout(frame)),
        STDERR => Some(ExecMessage::Stderr(frame)),
        STATUS => Some(ExecMessage::Status(frame)),
        _ => None,
    }
}

/// Returns the exit code that a status contains; the error is the reason why the program did not run.
fn exit_code(status: &[u8]) -> Result<i32, VendorFault> {
    let status: Value = serde_json::from_slice(status).unwrap_or_default();
    if status["status"] == "Success" {
        return Ok(0);
    }
    let causes = status["details"]["causes"].as_array().map_or(&[][..], Vec::as_slice);
    let code = causes.iter().find(|cause| cause["reason"] == "ExitCode");
    if let Some(code) = code.and_then(|cause| cause["message"].as_str()?.parse().ok()) {
        return Ok(code);
    }
    let message = status["message"].as_str().unwrap_or("the program did not run").to_owned();
    if message.contains("/bin/sh") && message.contains("no such file") {
        let reason = format!("the image has no /bin/sh, which shells need: {message}");
        return Err(VendorFault::BadImage { reason });
    }
    Err(VendorFault::Status { vendor: VENDOR, status: StatusCode::BAD_GATEWAY, message })
}

fn broken(why: impl Into<String>) -> VendorFault {
    VendorFault::Transport { vendor: VENDOR, reason: why.into() }
}

/// Returns the next message of a program. `None` if the connection was closed.
async fn next(
    stream: &mut (impl StreamExt<Item = Result<Message, tokio_tungstenite::tungstenite::Error>> + Unpin),
) -> Result<Option<ExecMessage>, VendorFault> {
    loop {
        match timeout(SILENCE_TIMEOUT, stream.next()).await {
            Err(_) => return Err(broken("the stream was silent for a minute")),
            Ok(None | Some(Ok(Message::Close(_)))) => return Ok(None),
            Ok(Some(Err(error))) => return Err(broken(error.to_string())),
            Ok(Some(Ok(Message::Binary(frame)))) => {
                if let Some(message) = parse(frame) {
                    return Ok(Some(message));
                }
            }
            Ok(Some(Ok(
                Message::Text(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_),
            ))) => {}
        }
    }
}

/// Sends input to a program and collects its output until it ends, or for a limited time.
pub(super) async fn run(
    socket: WebSocket,
    input: Bytes,
    limit: Duration,
    progress: Option<UploadProgress>,
) -> Result<Executed, VendorFault> {
    let (mut sink, mut stream) = socket.split();
    let write = async {
        let mut sent = 0;
        for piece in input.chunks(MAX_MESSAGE_BYTES) {
            sink.send(framed(piece)).await?;
            sent += piece.len() as u64;
            if let Some(progress) = &progress {
                progress(sent);
            }
        }
        let mut pings = interval(PING_INTERVAL);
        loop {
            pings.tick().await;
            sink.send(Message::Ping(Bytes::new())).await?;
        }
    };
    let write = async {
        let ended: Result<(), tokio_tungstenite::tungstenite::Error> = write.await;
        if let Err(error) = ended {
            tracing::debug!(%error, "cannot write to a program in a pod");
        }
        // A program that does not read its input still has an end.
        std::future::pending::<()>().await;
    };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let read = async {
        loop {
            match next(&mut stream).await? {
                Some(ExecMessage::Stdout(bytes)) => stdout.extend_from_slice(&bytes),
                Some(ExecMessage::Stderr(bytes)) => stderr.extend_from_slice(&bytes),
                Some(ExecMessage::Status(status)) => return exit_code(&status),
                None => return Err(broken("the stream ended before the program")),
            }
            if stdout.len().max(stderr.len()) > MAX_OUTPUT_BYTES {
                return Err(broken(format!(
                    "a program printed more than {MAX_OUTPUT_BYTES} bytes"
                )));
            }
        }
    };
    let ended = tokio::select! {
        ended = read => Some(ended),
        () = write => None,
        () = tokio::time::sleep(limit + RESULT_TIMEOUT) => None,
    };
    let exit_code = ended.transpose()?;
    Ok(Executed { exit_code, stdout, stderr })
}

/// Forwards the input and output of a program, until either end closes.
pub(super) fn channel(socket: WebSocket) -> Channel {
    let (to_us, output) = mpsc::channel(MAX_QUEUED_CHUNKS);
    let (input, from_us) = mpsc::channel(MAX_QUEUED_CHUNKS);
    tokio::spawn(forward(socket, to_us, from_us));
    Channel { output, input }
}

async fn forward(
    socket: WebSocket,
    to_us: mpsc::Sender<Bytes>,
    mut from_us: mpsc::Receiver<Bytes>,
) {
    let (mut sink, mut stream) = socket.split();
    let write = async {
        let mut pings = interval(PING_INTERVAL);
        loop {
            let bytes = tokio::select! {
                bytes = from_us.recv() => match bytes { Some(bytes) => bytes, None => break },
                _ = pings.tick() => {
                    sink.send(Message::Ping(Bytes::new())).await?;
                    continue;
                }
            };
            for piece in bytes.chunks(MAX_MESSAGE_BYTES) {
                sink.send(framed(piece)).await?;
            }
        }
        // The kubelet then closes the input of the program.
        sink.close().await
    };
    let read = async {
        loop {
            let bytes = match next(&mut stream).await {
                Ok(Some(ExecMessage::Stdout(bytes) | ExecMessage::Stderr(bytes))) => bytes,
                Ok(Some(ExecMessage::Status(_)) | None) => return,
                Err(fault) => {
                    tracing::debug!(%fault, "the output of a program in a pod was cut off");
                    return;
                }
            };
            if to_us.send(bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        written = write => if let Err(error) = written {
            tracing::debug!(%error, "cannot write to a program in a pod");
        },
        () = read => {}
        () = to_us.closed() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_begins_with_its_channel() {
        assert_eq!(framed(b"in"), Message::Binary(Bytes::from_static(b"\0in")));
        let parsed = |frame: &'static [u8]| parse(Bytes::from_static(frame));
        assert_eq!(parsed(b"\x01out"), Some(ExecMessage::Stdout(Bytes::from_static(b"out"))));
        assert_eq!(parsed(b"\x02\xff"), Some(ExecMessage::Stderr(Bytes::from_static(b"\xff"))));
        assert_eq!(parsed(b"\x03{}"), Some(ExecMessage::Status(Bytes::from_static(b"{}"))));
        for nothing in [&b""[..], b"\x01", b"\x04{}", b"\xffx"] {
            assert_eq!(parsed(nothing), None);
        }
    }

    #[test]
    fn a_status_says_how_the_program_ended() {
        assert_eq!(exit_code(br#"{"status":"Success"}"#).unwrap(), 0);
        let failed = br#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":
            [{"reason":"ExitCode","message":"137"}]},"message":"exit code 137"}"#;
        assert_eq!(exit_code(failed).unwrap(), 137);
        let missing = br#"{"status":"Failure","message":"exec failed: \"/bin/sh\": no such file or directory"}"#;
        let fault = exit_code(missing).unwrap_err();
        assert!(matches!(&fault, VendorFault::BadImage { .. }), "{fault}");
        let fault = exit_code(br#"{"status":"Failure","message":"container not running"}"#);
        let fault = fault.unwrap_err().to_string();
        assert!(fault.ends_with("container not running"), "{fault}");
        assert!(exit_code(b"no json").is_err());
    }
}
