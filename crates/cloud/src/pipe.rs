//! The server's end of a bridge: turns the lines that a vendor carries back into a byte stream.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::bridge::{CLOSED, READY};
use super::line::{BridgeLine, MAX_LINE_BYTES, MAX_LINE_CHARS, StreamEnd, take};

/// How long a bridge may take to be ready; it may have to start a host.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// When bytes are sent again that were not acknowledged; then twice as long, and so on.
const REPEAT_DELAY: Duration = Duration::from_secs(2);
/// A bridge that acknowledges nothing after this delay is given up, so that another one is started.
const MAX_REPEAT_DELAY: Duration = Duration::from_secs(16);
const STREAM_BUFFER_BYTES: usize = 256 << 10;
/// How much unexpected output an error message repeats.
const MAX_MESSAGE_CHARS: usize = 500;

/// Text in both directions. A closed channel means that the other end has closed.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) output: mpsc::Receiver<Bytes>,
    pub(super) input: mpsc::Sender<Bytes>,
}

/// Waits for the bridge `name` and returns the stream through it.
pub(super) async fn join(mut channel: Channel, name: &str) -> io::Result<DuplexStream> {
    let ready = format!("{READY} {name}");
    let deadline = Instant::now() + READY_TIMEOUT;
    let (mut pending, mut output) = (Vec::new(), String::new());
    loop {
        while let Some(line) = take(&mut pending) {
            let line = String::from_utf8_lossy(&line).trim().to_owned();
            if line == ready {
                let (ours, theirs) = tokio::io::duplex(STREAM_BUFFER_BYTES);
                tokio::spawn(forward(channel, ours, pending));
                return Ok(theirs);
            }
            output = [output, line].join(" ");
        }
        let instead = |pending: &[u8]| {
            let all = format!("{output} {}", String::from_utf8_lossy(pending));
            all.trim().chars().take(MAX_MESSAGE_CHARS).collect::<String>()
        };
        match timeout_at(deadline, channel.output.recv()).await {
            Ok(Some(bytes)) => pending.extend_from_slice(&bytes),
            Ok(None) => {
                let why = format!("the bridge to the host ended: {}", instead(&pending));
                return Err(io::Error::other(why));
            }
            Err(_) => {
                let why =
                    format!("the bridge to the host was not ready in time: {}", instead(&pending));
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
        }
        if output.len() + pending.len() > MAX_LINE_CHARS {
            return Err(io::Error::other(format!(
                "unexpected output instead of the bridge: {}",
                instead(&pending)
            )));
        }
    }
}

async fn forward(mut channel: Channel, stream: DuplexStream, mut pending: Vec<u8>) {
    let (mut from, mut to) = tokio::io::split(stream);
    let mut end = StreamEnd::outside();
    let mut buffer = vec![0; MAX_LINE_BYTES];
    let mut repeat = RepeatTimer::default();
    loop {
        match receive(&mut pending, &mut end, &mut to).await {
            Ok(true) => {}
            Ok(false) | Err(_) => return,
        }
        if let Some(answer) = end.answer()
            && send_line(&channel, answer).await.is_err()
        {
            return;
        }
        let room = end.room().min(buffer.len());
        let due = repeat.due(end.awaits());
        tokio::select! {
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                // A vendor may have confirmed a line that it lost.
                if !repeat.postpone() || send_line(&channel, end.repeat()).await.is_err() {
                    return;
                }
            }
            output = channel.output.recv() => match output {
                Some(bytes) => pending.extend_from_slice(&bytes),
                None => return,
            },
            count = read(&mut from, &mut buffer[..room]), if room > 0 => match count {
                Ok(0) | Err(_) => return,
                Ok(count) => {
                    let text = end.send(&buffer[..count]);
                    if send_line(&channel, text).await.is_err() {
                        return;
                    }
                }
            },
        }
    }
}

/// When bytes that were not acknowledged are sent again.
#[derive(Default)]
struct RepeatTimer {
    /// The offset that the other end has confirmed, since when, and the delay from then on.
    waits: Option<(u64, Instant, Duration)>,
}

impl RepeatTimer {
    /// Returns when to repeat, given the confirmed offset if bytes are in transit.
    fn due(&mut self, confirmed: Option<u64>) -> Option<Instant> {
        let confirmed = confirmed?;
        match self.waits {
            Some((offset, since, delay)) if offset == confirmed => Some(since + delay),
            _ => {
                self.waits = Some((confirmed, Instant::now(), REPEAT_DELAY));
                Some(Instant::now() + REPEAT_DELAY)
            }
        }
    }

    /// Doubles the delay; `false` if it has become too long.
    fn postpone(&mut self) -> bool {
        let Some((_, since, delay)) = &mut self.waits else { return false };
        (*since, *delay) = (Instant::now(), *delay * 2);
        *delay <= MAX_REPEAT_DELAY
    }
}

/// Sends text on a new line, in case a torn line precedes it.
async fn send_line(channel: &Channel, text: String) -> Result<(), mpsc::error::SendError<Bytes>> {
    channel.input.send(Bytes::from(format!("\n{text}"))).await
}

async fn read(from: &mut ReadHalf<DuplexStream>, buffer: &mut [u8]) -> io::Result<usize> {
    from.read(buffer).await
}

/// Forwards the complete lines; `false` when the other end has closed.
async fn receive(
    pending: &mut Vec<u8>,
    end: &mut StreamEnd,
    to: &mut WriteHalf<DuplexStream>,
) -> io::Result<bool> {
    while let Some(line) = take(pending) {
        if line.strip_suffix(b"\n").is_some_and(|line| line.trim_ascii() == CLOSED.as_bytes()) {
            return Ok(false);
        }
        let Some(line) = BridgeLine::parse(&line) else { continue };
        match end.receive(line) {
            Ok(bytes) => to.write_all(&bytes).await?,
            Err(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
    if pending.len() > MAX_LINE_CHARS { Err(io::ErrorKind::InvalidData.into()) } else { Ok(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bridge_that_acknowledges_nothing_is_given_up() {
        let (output, from_bridge) = mpsc::channel(8);
        let (to_bridge, mut input) = mpsc::channel(8);
        output.send(Bytes::from(format!("{READY} name\n"))).await.unwrap();
        let channel = Channel { output: from_bridge, input: to_bridge };
        let mut stream = join(channel, "name").await.unwrap();
        stream.write_all(b"lost").await.unwrap();
        let first = input.recv().await.unwrap();
        let mut repeated = 0;
        while let Some(line) = input.recv().await {
            assert_eq!(line, first);
            repeated += 1;
        }
        assert_eq!(repeated, 3);
        assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    }
}
