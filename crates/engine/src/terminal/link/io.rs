//! Writes requests to the socket of a host, and forwards its events.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wire::{Decoder, Event, Request, Stream};

use super::error::LinkError;
use super::shared::{LinkShared, Progress};

const READ_BUFFER_BYTES: usize = 256 << 10;

pub(super) async fn write<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut frames: mpsc::Receiver<Vec<u8>>,
    closed: CancellationToken,
) {
    loop {
        let frame = tokio::select! {
            () = closed.cancelled() => break,
            frame = frames.recv() => match frame { Some(frame) => frame, None => break },
        };
        let written = tokio::select! {
            () = closed.cancelled() => break,
            written = writer.write_all(&frame) => written,
        };
        if written.is_err() {
            break;
        }
    }
    closed.cancel();
}

pub(super) async fn read<R: AsyncRead + Unpin>(
    mut reader: R,
    mut decoder: Decoder,
    inner: Arc<LinkShared>,
) {
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    loop {
        match drain(&mut decoder, &inner) {
            Ok(behind) => {
                for terminal in behind {
                    // The owner attaches again when it has processed its queue.
                    inner.post(|seq| Request::Detach { seq, terminal });
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot decode the stream of a host");
                break;
            }
        }
        let count = tokio::select! {
            () = inner.closed.cancelled() => break,
            read = reader.read(&mut buffer) => match read { Ok(0) | Err(_) => break, Ok(n) => n },
        };
        inner.note_received();
        decoder.feed(&buffer[..count]);
    }
    inner.closed.cancel();
    inner.calls.lock().clear();
    // Every owner receives the end of its channel, because the senders are dropped.
    inner.terminals.lock().clear();
    inner.commands.lock().clear();
}

/// Forwards every complete frame. Returns the terminals whose output was dropped.
fn drain(decoder: &mut Decoder, inner: &LinkShared) -> Result<Vec<String>, LinkError> {
    let mut behind = Vec::new();
    while let Some(frame) =
        decoder.next_frame().map_err(|error| LinkError::Protocol(error.to_string()))?
    {
        let Some(event) =
            Event::decode(&frame).map_err(|error| LinkError::Protocol(error.to_string()))?
        else {
            continue;
        };
        if let Some(terminal) = forward(event, inner) {
            behind.push(terminal);
        }
    }
    Ok(behind)
}

/// Forwards one event. Returns the terminal if its output was dropped.
fn forward(event: Event, inner: &LinkShared) -> Option<String> {
    if let Some(seq) = event.answers() {
        if let Some(call) = inner.calls.lock().remove(&seq) {
            let _ = call.send(event);
        }
        return None;
    }
    update_progress(&event, inner);
    let of_command;
    let terminal = match &event {
        Event::Output { terminal, .. }
        | Event::Resized { terminal, .. }
        | Event::Gap { terminal, .. }
        | Event::Exited { terminal, .. } => {
            let mut terminals = inner.terminals.lock();
            let listener = terminals.get_mut(terminal)?;
            if listener.behind {
                return None;
            }
            let terminal = terminal.clone();
            if let Event::Exited { .. } = event
                && listener.channels.records.try_send(Box::new(event.clone())).is_err()
            {
                listener.channels.resync.send_replace(true);
            }
            if let Err(mpsc::error::TrySendError::Full(_)) =
                listener.channels.output.try_send(Box::new(event))
            {
                listener.behind = true;
                return Some(terminal);
            }
            return None;
        }
        Event::Started { terminal, .. }
        | Event::Done { terminal, .. }
        | Event::Typed { terminal, .. }
        | Event::StateChanged { terminal, .. }
        | Event::Restarted { terminal, .. } => terminal,
        Event::Sealed { command, .. } | Event::Waiting { command, .. } => {
            of_command = inner.commands.lock().get(command)?.terminal.clone();
            &of_command
        }
        Event::Hello { .. }
        | Event::Reply { .. }
        | Event::Terminals { .. }
        | Event::LogChunk { .. }
        | Event::CommandOutput { .. }
        | Event::ExecChunk { .. }
        | Event::StateReply { .. }
        | Event::MetricsReply { .. }
        | Event::PortsReply { .. } => return None,
    };
    let terminals = inner.terminals.lock();
    let listener = terminals.get(terminal)?;
    if let Err(mpsc::error::TrySendError::Full(_)) =
        listener.channels.records.try_send(Box::new(event))
    {
        listener.channels.resync.send_replace(true);
    }
    None
}

/// Updates the progress of the command that an event is about.
fn update_progress(event: &Event, inner: &LinkShared) {
    let change = |command: &str, change: &dyn Fn(&mut Progress)| {
        if let Some(tracked) = inner.commands.lock().get(command) {
            tracked.progress.send_modify(change);
        }
    };
    match event {
        Event::Started { command, .. } => change(command, &|p| p.started = true),
        Event::CommandOutput { command, stream, offset, bytes } => {
            let end = offset + bytes.len() as u64;
            change(command, &|p| match stream {
                Stream::Stderr => p.stderr = p.stderr.max(end),
                Stream::Stdout | Stream::Other(_) => p.stdout = p.stdout.max(end),
            });
        }
        Event::Waiting { command, waiting } => change(command, &|p| p.waiting = *waiting),
        Event::Sealed { command, stdout_bytes, stderr_bytes } => change(command, &|p| {
            (p.stdout, p.stderr, p.sealed) = (*stdout_bytes, *stderr_bytes, true);
        }),
        _ => {}
    }
}
