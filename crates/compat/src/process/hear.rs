//! Listening to a program: what it says, what others say that it left with its output, and its end.

use host::wire::Stream;
use tokio::sync::mpsc;

use super::{End, Kind, Process, Said};
use crate::Compat;
use api::error::Problem;
use engine::terminal::{Execution, TerminalError, WatchEvent, WatchFrom, WatcherUpdate};
use model::{Command, CommandId};

/// How often it is looked at an output that is held for long.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(60);

/// How long a program is listened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Until it has ended.
    Ended,
    /// Until nobody holds its output any more.
    Closed,
}

impl Compat {
    /// Tells everything a program said and says, and at last how it ended.
    pub async fn hear(&self, process: &Process, said: &mpsc::Sender<Said>) -> Result<(), Problem> {
        self.hear_until(process, Until::Ended, said).await
    }

    /// The same, with what others say that it started and left with its output.
    pub async fn hear_out(
        &self,
        process: &Process,
        said: &mpsc::Sender<Said>,
    ) -> Result<(), Problem> {
        self.hear_until(process, Until::Closed, said).await
    }

    async fn hear_until(
        &self,
        process: &Process,
        until: Until,
        said: &mpsc::Sender<Said>,
    ) -> Result<(), Problem> {
        match &process.kind {
            Kind::Pty => self.hear_pty(process, said).await,
            Kind::Command { id, begins } => {
                let begin = [(Stream::Stdout, 0), (Stream::Stderr, *begins)];
                self.hear_command(process, id, begin, until, said).await
            }
        }
    }

    async fn hear_command(
        &self,
        process: &Process,
        id: &CommandId,
        mut cursors: [(Stream, u64); 2],
        until: Until,
        said: &mpsc::Sender<Said>,
    ) -> Result<(), Problem> {
        let mut execution = self.terminals.follow(&process.terminal, id).await;
        if let Some(execution) = &execution {
            // One that has ended since has told everything.
            let _ = execution.listen().await;
        }
        let mut last = until == Until::Ended;
        loop {
            let over = execution.as_ref().is_none_or(Execution::is_over);
            if let Some(execution) = &mut execution {
                execution.progress().mark_unchanged();
            }
            let command = self.command_of(id, execution.as_ref()).await?;
            let mut closed = true;
            for (stream, from) in &mut cursors {
                loop {
                    let limit = host::wire::MAX_DATA as u32;
                    let read =
                        self.terminals.output(&process.terminal, &command, *stream, *from, limit);
                    let chunk = match read.await {
                        Ok(chunk) => chunk,
                        // It wrote nothing that was kept.
                        Err(TerminalError::NotKept) => break,
                        Err(error) => return Err(error.into()),
                    };
                    if chunk.bytes.is_empty() {
                        closed &= chunk.end;
                        break;
                    }
                    *from = chunk.next;
                    let piece = match stream {
                        Stream::Stderr => Said::Stderr(chunk.bytes),
                        Stream::Stdout | Stream::Other(_) => Said::Stdout(chunk.bytes),
                    };
                    if said.send(piece).await.is_err() {
                        return Ok(());
                    }
                }
            }
            if over {
                if !closed && !last {
                    // What was written before nobody held it is read once more.
                    last = tokio::select! {
                        more = self.more_of(process, &command, &cursors) => !more,
                        () = said.closed() => return Ok(()),
                    };
                    continue;
                }
                let _ = said.send(Said::End(process.end_of(&command))).await;
                return Ok(());
            }
            if let Some(execution) = &mut execution {
                tokio::select! {
                    more = execution.more() => more?,
                    () = said.closed() => return Ok(()),
                }
            }
        }
    }

    /// Waits until something more was written to the output of a command that has ended, or nobody
    /// holds it any more; `false` when that cannot be told.
    async fn more_of(
        &self,
        process: &Process,
        command: &Command,
        cursors: &[(Stream, u64); 2],
    ) -> bool {
        let later = tokio::time::Instant::now() + LOOK_AGAIN;
        let more = cursors.map(|(stream, from)| {
            self.terminals.more_output(&process.terminal, command, stream, from, later)
        });
        let [stdout, stderr] = more.map(Box::pin);
        let first = futures_util::future::select(stdout, stderr).await;
        // When it was long, it is looked at again.
        first.factor_first().0 || tokio::time::Instant::now() >= later
    }

    /// The command as it is known now.
    async fn command_of(
        &self,
        id: &CommandId,
        execution: Option<&Execution>,
    ) -> Result<Command, Problem> {
        if let Some(Ok(command)) = execution.map(Execution::command) {
            return Ok(command);
        }
        let command = self.store.command(id).await?;
        command.ok_or_else(|| Problem::missing("command", id))
    }

    async fn hear_pty(&self, process: &Process, said: &mpsc::Sender<Said>) -> Result<(), Problem> {
        let terminal = &process.terminal;
        let from = WatchFrom::Offset(0);
        let mut watcher = self.terminals.watch_as_guest(terminal, "sdk".to_owned(), from).await?;
        let end = |(code, signal): (Option<i32>, Option<i32>)| match (code, signal) {
            (_, Some(signal)) if signal != 0 => End::Signal(signal),
            (Some(code), _) => End::Exit(code),
            (None, _) => End::Lost,
        };
        // One that had ended before tells of it no more.
        let exit = self.terminals.facts(terminal).await.exit;
        let until = self.terminals.facts(terminal).await.offset;
        loop {
            if let Some(exit) = exit
                && watcher.offset() >= until
            {
                let _ = said.send(Said::End(end(exit))).await;
                return Ok(());
            }
            let told = tokio::select! {
                told = watcher.next() => told,
                () = said.closed() => return Ok(()),
            };
            let piece = match told {
                Ok(WatcherUpdate::Picture(picture)) => Said::Pty(picture.data),
                Ok(WatcherUpdate::Event(WatchEvent::Output { bytes, .. })) => Said::Pty(bytes),
                Ok(WatcherUpdate::Event(WatchEvent::Exit { code, signal })) => {
                    Said::End(end((code, signal)))
                }
                Ok(WatcherUpdate::Event(_)) => continue,
                Err(_) => Said::End(End::Lost),
            };
            let over = matches!(piece, Said::End(_));
            if said.send(piece).await.is_err() || over {
                return Ok(());
            }
        }
    }
}
