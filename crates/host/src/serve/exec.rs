//! Requests about commands and the state of shells.

use std::time::Duration;

use rustix::process::Signal;

use super::Host;
use super::executions::OutputWatch;
use super::program::is_id;
use super::refusal::{Answer, Refusal};
use super::slots::Key;
use super::terminal::HostTerminal;
use shell::{Keep, Spec, State, StdinEnd};
use wire::{Event, ReplyCode, Request, Stream};

/// The maximum number of bytes in the answer to one `ExecRead`.
const MAX_CHUNK_BYTES: usize = 1 << 20;

impl Host {
    pub(super) fn find_command(&self, command: &str) -> Result<Key, Refusal> {
        if let Some(key) = self.exec.commands.get(command) {
            return Ok(*key);
        }
        let knows = |terminal: &HostTerminal| {
            terminal.driver.as_ref().is_some_and(|driver| driver.commands().knows(command))
        };
        let found = self.terminals.iter().find(|(_, terminal)| knows(terminal));
        found.map(|(key, _)| key).ok_or_else(|| Refusal(ReplyCode::NoSuchCommand, String::new()))
    }

    /// Handles a request about commands or state.
    pub(super) fn handle_exec(&mut self, connection: Key, request: Request) -> Answer {
        let refused = |code: ReplyCode| Refusal(code, String::new());
        let missing = Refusal(ReplyCode::NotDrivable, String::new());
        let accepted = |result: Option<Result<(), ReplyCode>>| match result {
            Some(Ok(())) => Ok(()),
            Some(Err(code)) => Err(Refusal(code, String::new())),
            None => Err(Refusal(ReplyCode::NotDrivable, String::new())),
        };
        match request {
            Request::Exec {
                seq,
                terminal,
                command,
                text,
                timeout_ms,
                stdin,
                stdin_data,
                env,
                cwd,
                if_busy,
                keep_head,
                keep_tail,
            } => {
                let key = self.find(&terminal)?;
                if !is_id(&command) {
                    return Err(refused(ReplyCode::BadRequest));
                }
                if self.exec.commands.contains_key(&command) {
                    return Err(refused(ReplyCode::CommandExists));
                }
                let spec = Spec {
                    command: command.clone(),
                    text,
                    timeout: (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms)),
                    stdin,
                    stdin_data,
                    env,
                    cwd: Some(cwd).filter(|cwd| !cwd.is_empty()),
                    if_busy,
                    keep: Keep { head: keep_head, tail: keep_tail },
                };
                // The answer precedes `Started`, which the driver may report at once.
                let mut later = Vec::new();
                let result = self.drive(key, |driver, at, effects| {
                    let result = driver.exec(spec, at, effects);
                    std::mem::swap(effects, &mut later);
                    result
                });
                accepted(result)?;
                self.exec.commands.insert(command, key);
                self.reply(connection, seq, ReplyCode::Ok, String::new());
                for effect in later {
                    self.perform(key, effect);
                }
                Ok(None)
            }
            Request::State { seq, terminal } => {
                let key = self.find(&terminal)?;
                let driver = self.terminals.get(key).and_then(|found| found.driver.as_ref());
                let driver = driver.ok_or(missing)?;
                Ok(Some(Event::StateReply { seq, sections: driver.state().sections() }))
            }
            Request::Apply { seq, terminal, script } => {
                let key = self.find(&terminal)?;
                self.exec.tokens += 1;
                let token = self.exec.tokens;
                self.exec.scripts.insert(token, (connection, seq));
                let result =
                    self.drive(key, |driver, at, effects| driver.apply(token, script, at, effects));
                accepted(result).inspect_err(|_| {
                    self.exec.scripts.remove(&token);
                })?;
                Ok(None)
            }
            Request::Replace { seq, terminal, state } => {
                let key = self.find(&terminal)?;
                let state = State::from_sections(state);
                self.drive(key, |driver, at, effects| driver.replace(state, at, effects))
                    .ok_or(missing)?;
                ok(seq)
            }
            Request::ExecStdin { seq, command, write_id, data, eof } => {
                let key = self.find_command(&command)?;
                let end = if eof { StdinEnd::Eof } else { StdinEnd::Open };
                accepted(self.drive(key, |driver, at, _| {
                    driver.stdin(&command, &write_id, &data, end, at)
                }))?;
                ok(seq)
            }
            Request::ExecSignal { seq, command, signal } => {
                let key = self.find_command(&command)?;
                let signal =
                    Signal::from_named_raw(signal).ok_or_else(|| refused(ReplyCode::BadRequest))?;
                accepted(self.drive(key, |driver, at, effects| {
                    driver.signal(&command, signal, at, effects)
                }))?;
                ok(seq)
            }
            Request::ExecCancel { seq, command } => {
                let key = self.find_command(&command)?;
                accepted(
                    self.drive(key, |driver, at, effects| driver.cancel(&command, at, effects)),
                )?;
                ok(seq)
            }
            Request::ExecWithdraw { seq, command } => {
                let key = self.find_command(&command)?;
                accepted(
                    self.drive(key, |driver, at, effects| driver.withdraw(&command, at, effects)),
                )?;
                ok(seq)
            }
            Request::ExecRead { seq, command, stream, from, limit } => {
                let key = self.find_command(&command)?;
                let nth = number(stream)?;
                self.drive(key, |driver, _, _| driver.persist(&command));
                let driver = self.terminals.get(key).and_then(|found| found.driver.as_ref());
                let limit = (limit as usize).clamp(1, MAX_CHUNK_BYTES);
                let read =
                    driver.and_then(|driver| driver.commands().read(&command, nth, from, limit));
                let (piece, end) = read
                    .ok_or_else(|| refused(ReplyCode::NoSuchCommand))?
                    .map_err(|error| Refusal(ReplyCode::Storage, error.to_string()))?;
                let (offset, next, bytes) = (piece.offset, piece.next, piece.bytes);
                Ok(Some(Event::ExecChunk { seq, offset, next, end, bytes }))
            }
            Request::ExecWatch { seq, command, from_out, from_err } => {
                let key = self.find_command(&command)?;
                self.drive(key, |driver, _, _| driver.persist(&command));
                self.reply(connection, seq, ReplyCode::Ok, String::new());
                let watches = self.exec.watches.entry(command.clone()).or_default();
                watches.retain(|watch| watch.connection != connection);
                watches.push(OutputWatch { connection, next: [from_out, from_err] });
                self.send_past_events(key, connection, &command);
                Ok(None)
            }
            Request::ExecUnwatch { seq, command } => {
                self.exec.unwatch(connection, &command);
                ok(seq)
            }
            Request::ExecForget { seq, command } => {
                let key = self.find_command(&command)?;
                self.exec.unwatch(connection, &command);
                if self.drive(key, |driver, _, _| driver.forget(&command)) == Some(true) {
                    self.exec.commands.remove(&command);
                }
                ok(seq)
            }
            _ => Err(refused(ReplyCode::Unsupported)),
        }
    }
}

fn number(stream: Stream) -> Result<usize, Refusal> {
    match stream {
        Stream::Stdout => Ok(0),
        Stream::Stderr => Ok(1),
        Stream::Other(_) => Err(Refusal(ReplyCode::BadRequest, String::new())),
    }
}

fn ok(seq: u32) -> Answer {
    Ok(Some(Event::Reply { seq, code: ReplyCode::Ok, message: String::new() }))
}
