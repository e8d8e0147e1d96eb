//! The server's end of a bridge: the lines that a vendor carries become a byte stream again.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::bridge::{OVER, READY};
use super::line::{End, LONGEST, Line, PIECE, take};

/// How long a bridge has to stand; a host may have to be started for it.
const STANDS: Duration = Duration::from_secs(60);
/// What is buffered between us and whoever uses the stream.
const BUFFER: usize = 256 << 10;
/// How much of what was said instead is repeated.
const WORDS: usize = 500;

/// What a vendor carries: text both ways. Either end is gone when its channel is closed.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) output: mpsc::Receiver<Bytes>,
    pub(super) input: mpsc::Sender<Bytes>,
}

/// The stream beyond a bridge called `name`, once it stands.
pub(super) async fn join(mut channel: Channel, name: &str) -> io::Result<DuplexStream> {
    let ready = format!("{READY} {name}");
    let deadline = Instant::now() + STANDS;
    let (mut pending, mut said) = (Vec::new(), String::new());
    loop {
        while let Some(line) = take(&mut pending) {
            let line = String::from_utf8_lossy(&line).trim().to_owned();
            if line == ready {
                let (ours, theirs) = tokio::io::duplex(BUFFER);
                tokio::spawn(carry(channel, ours, pending));
                return Ok(theirs);
            }
            said = [said, line].join(" ");
        }
        let instead = |pending: &[u8]| {
            let all = format!("{said} {}", String::from_utf8_lossy(pending));
            all.trim().chars().take(WORDS).collect::<String>()
        };
        match timeout_at(deadline, channel.output.recv()).await {
            Ok(Some(bytes)) => pending.extend_from_slice(&bytes),
            Ok(None) => {
                let why = format!("the bridge to the host did not stand: {}", instead(&pending));
                return Err(io::Error::other(why));
            }
            Err(_) => {
                let why = format!("no bridge to the host in time: {}", instead(&pending));
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
        }
        if said.len() + pending.len() > LONGEST {
            return Err(io::Error::other(format!("this is no bridge: {}", instead(&pending))));
        }
    }
}

async fn carry(mut channel: Channel, stream: DuplexStream, mut pending: Vec<u8>) {
    let (mut from, mut to) = tokio::io::split(stream);
    let mut end = End::outside();
    let mut buffer = vec![0; PIECE];
    loop {
        match hear(&mut pending, &mut end, &mut to).await {
            Ok(true) => {}
            Ok(false) | Err(_) => return,
        }
        if let Some(answer) = end.answer()
            && say(&channel, answer).await.is_err()
        {
            return;
        }
        let room = end.room().min(buffer.len());
        tokio::select! {
            output = channel.output.recv() => match output {
                Some(bytes) => pending.extend_from_slice(&bytes),
                None => return,
            },
            count = read(&mut from, &mut buffer[..room]), if room > 0 => match count {
                Ok(0) | Err(_) => return,
                Ok(count) => {
                    let text = end.send(&buffer[..count]);
                    if say(&channel, text).await.is_err() {
                        return;
                    }
                }
            },
        }
    }
}

/// Begins on a line of its own: what was torn before it stays alone.
async fn say(channel: &Channel, text: String) -> Result<(), mpsc::error::SendError<Bytes>> {
    channel.input.send(Bytes::from(format!("\n{text}"))).await
}

async fn read(from: &mut ReadHalf<DuplexStream>, buffer: &mut [u8]) -> io::Result<usize> {
    from.read(buffer).await
}

/// Passes on what whole lines say; false when the other end is over.
async fn hear(
    pending: &mut Vec<u8>,
    end: &mut End,
    to: &mut WriteHalf<DuplexStream>,
) -> io::Result<bool> {
    while let Some(line) = take(pending) {
        if line.strip_suffix(b"\n").is_some_and(|line| line.trim_ascii() == OVER.as_bytes()) {
            return Ok(false);
        }
        let Some(line) = Line::parse(&line) else { continue };
        match end.receive(line) {
            Ok(bytes) => to.write_all(&bytes).await?,
            Err(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
    if pending.len() > LONGEST { Err(io::ErrorKind::InvalidData.into()) } else { Ok(true) }
}
