//! Handling requests.

use std::io;

use rustix::io::Errno;
use rustix::process::Signal;

use super::Host;
use super::open::Opening;
use super::program::ProgramLaunch;
use super::refusal::{Answer, Refusal};
use super::slots::Key;
use super::terminal::ProgramState;
use crate::log::{LogCursor, LogItem, ReadProgress};
use wire::{Event, LogRecord, MAX_DATA, Malformed, ReplyCode, Request};

/// The maximum number of data bytes in one `LogChunk`.
const MAX_CHUNK_BYTES: usize = 1 << 20;

impl Host {
    /// Handles the requests of a connection until there are no more, or until its buffer for answers is
    /// full.
    pub(super) fn answer_requests(&mut self, key: Key) {
        while let Some(connection) = self.connections.get_mut(key) {
            if !connection.has_room() {
                connection.flush();
                if !connection.has_room() {
                    return;
                }
            }
            match next(&mut connection.decoder) {
                Ok(None) => return,
                Ok(Some(DecodedRequest::Known(request))) => self.answer(key, request),
                Ok(Some(DecodedRequest::Unknown { seq, code })) => {
                    if let Some(seq) = seq {
                        connection.push(&Event::Reply { seq, code, message: String::new() });
                    }
                }
                Err(_) => {
                    // The frame boundaries are lost: nothing that follows can be trusted.
                    self.disconnect(key);
                    return;
                }
            }
        }
    }

    fn answer(&mut self, connection: Key, request: Request) {
        let Some(seq) = request.seq() else {
            // Only `Hello` has no sequence number.
            if let Some(connection) = self.connections.get_mut(connection) {
                connection.greeted = true;
            }
            return;
        };
        let event = match self.handle(connection, request) {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(Refusal(code, message)) => Event::Reply { seq, code, message },
        };
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.push(&event);
        }
        self.flush(connection);
    }

    fn handle(&mut self, connection: Key, request: Request) -> Answer {
        match request {
            Request::Hello { .. } => Ok(None),
            Request::Ping { seq } => ok(seq),
            Request::Open {
                seq,
                terminal,
                argv,
                cwd,
                env,
                cols,
                rows,
                dir,
                log_limit,
                base_offset,
                shell,
                state,
                notice,
            } => {
                let launch = ProgramLaunch { argv, cwd, env };
                self.open(Opening {
                    terminal,
                    launch,
                    cols,
                    rows,
                    dir,
                    log_limit,
                    base_offset,
                    shell,
                    state,
                    notice,
                })?;
                ok(seq)
            }
            Request::Close { seq, terminal } => {
                let key = self.find(&terminal)?;
                self.close(key, Some((connection, seq)));
                Ok(None)
            }
            Request::List { seq } => {
                let terminals =
                    self.terminals.iter().map(|(_, terminal)| terminal.info()).collect();
                Ok(Some(Event::Terminals { seq, terminals }))
            }
            Request::Attach { seq, terminal, from } => {
                let key = self.find(&terminal)?;
                self.start_watching(connection, key, from)?;
                ok(seq)
            }
            Request::Detach { seq, terminal } => {
                let key = self.find(&terminal)?;
                self.detach(connection, key);
                ok(seq)
            }
            Request::Input { seq, terminal, write_id, data } => {
                let key = self.find(&terminal)?;
                self.input(key, &write_id, &data)?;
                ok(seq)
            }
            Request::TypeSecret { seq, terminal, write_id, data } => {
                let key = self.find(&terminal)?;
                self.type_secret(key, &write_id, &data)?;
                ok(seq)
            }
            Request::Resize { seq, terminal, cols, rows } => {
                let key = self.find(&terminal)?;
                if cols == 0 || rows == 0 {
                    let message = "a screen needs at least one column and one row".to_owned();
                    return Err(Refusal(ReplyCode::BadRequest, message));
                }
                self.resize(key, cols, rows).map_err(failed)?;
                ok(seq)
            }
            Request::Signal { seq, terminal, signal } => {
                let key = self.find(&terminal)?;
                self.signal(key, signal)?;
                ok(seq)
            }
            Request::AckExit { seq, terminal } => {
                let key = self.find(&terminal)?;
                match self.terminals.get(key).map(|terminal| &terminal.program) {
                    Some(ProgramState::Exited(_)) => self.close(key, Some((connection, seq))),
                    _ => return Err(Refusal(ReplyCode::StillRunning, String::new())),
                }
                Ok(None)
            }
            Request::Trim { seq, terminal, upto } => {
                let key = self.find(&terminal)?;
                if let Some(terminal) = self.terminals.get_mut(key) {
                    terminal.log.trim(upto);
                }
                ok(seq)
            }
            Request::ReadLog { seq, terminal, from, limit } => {
                let key = self.find(&terminal)?;
                self.read_log(seq, key, from, limit).map(Some)
            }
            Request::Show { seq, terminal, data } => {
                let key = self.find(&terminal)?;
                if data.len() > MAX_DATA {
                    return Err(Refusal(
                        ReplyCode::BadRequest,
                        format!("more than {MAX_DATA} bytes"),
                    ));
                }
                self.show(key, &data);
                ok(seq)
            }
            Request::EndWithProgram { seq, terminal } => {
                let key = self.find(&terminal)?;
                // Without a driver the terminal ends with its program anyway.
                self.drive(key, |driver, _, _| driver.end_with_program());
                ok(seq)
            }
            Request::Metrics { seq } => {
                Ok(Some(Event::MetricsReply { seq, values: self.metrics() }))
            }
            Request::Ports { seq } => {
                let ports = crate::ports::listening();
                let ports = ports.map_err(|error| Refusal(ReplyCode::Failed, error.to_string()))?;
                Ok(Some(Event::PortsReply { seq, ports: ports.into_iter().collect() }))
            }
            Request::Shutdown { seq } => {
                self.shut_down();
                ok(seq)
            }
            Request::Exec { .. }
            | Request::State { .. }
            | Request::Apply { .. }
            | Request::Replace { .. }
            | Request::ExecStdin { .. }
            | Request::ExecSignal { .. }
            | Request::ExecRead { .. }
            | Request::ExecWatch { .. }
            | Request::ExecUnwatch { .. }
            | Request::ExecCancel { .. }
            | Request::ExecWithdraw { .. }
            | Request::ExecForget { .. } => self.handle_exec(connection, request),
            Request::Upgrade { seq, path } => {
                self.check_executable(&path, connection, seq)?;
                Ok(None)
            }
        }
    }

    pub(super) fn find(&self, terminal: &str) -> Result<Key, Refusal> {
        let found = self.names.get(terminal).copied();
        found.ok_or_else(|| Refusal(ReplyCode::NoSuchTerminal, String::new()))
    }

    fn start_watching(&mut self, connection: Key, key: Key, from: u64) -> Result<(), Refusal> {
        let end = self.terminals.get(key).map_or(0, |terminal| terminal.log.end());
        if from > end {
            return Err(Refusal(ReplyCode::BadOffset, format!("the output ends at {end}")));
        }
        self.attach(connection, key, from);
        Ok(())
    }

    fn input(&mut self, key: Key, write_id: &str, data: &[u8]) -> Result<(), Refusal> {
        if data.len() > MAX_DATA {
            return Err(Refusal(ReplyCode::BadRequest, format!("more than {MAX_DATA} bytes")));
        }
        let Some(terminal) = self.terminals.get_mut(key) else { return Ok(()) };
        match terminal.write_once(write_id, data) {
            ReplyCode::Ok => {}
            code => return Err(Refusal(code, String::new())),
        }
        self.drive(key, |driver, at, effects| driver.typed(data, at, effects));
        self.counters.bytes_in += data.len() as u64;
        self.await_input(key);
        Ok(())
    }

    /// Types a secret if a program waits for one. The check and the write are one step of this loop.
    fn type_secret(&mut self, key: Key, write_id: &str, data: &[u8]) -> Result<(), Refusal> {
        let Some(terminal) = self.terminals.get(key) else { return Ok(()) };
        if let Some(code) = terminal.refuses_secret(write_id) {
            return Err(Refusal(code, String::new()));
        }
        self.input(key, write_id, data)
    }

    fn signal(&mut self, key: Key, signal: i32) -> Result<(), Refusal> {
        let Some(terminal) = self.terminals.get(key) else { return Ok(()) };
        let Some(pid) = terminal.pid() else {
            return Err(Refusal(ReplyCode::Exited, String::new()));
        };
        let signal = Signal::from_named_raw(signal)
            .ok_or_else(|| Refusal(ReplyCode::BadRequest, format!("{signal} is not a signal")))?;
        let group = terminal.foreground().unwrap_or(pid);
        rustix::process::kill_process_group(group, signal).map_err(failed)
    }

    fn read_log(&mut self, seq: u32, key: Key, from: u64, limit: u32) -> Result<Event, Refusal> {
        let Some(terminal) = self.terminals.get(key) else {
            return Err(Refusal(ReplyCode::NoSuchTerminal, String::new()));
        };
        let end = terminal.log.end();
        if from > end {
            return Err(Refusal(ReplyCode::BadOffset, format!("the output ends at {end}")));
        }
        let limit = (limit as usize).clamp(1, MAX_CHUNK_BYTES);
        let mut cursor = LogCursor::new(from);
        let mut records = Vec::new();
        let mut taken = 0;
        while taken < limit {
            let mut visit = |item: LogItem<'_>| {
                if let LogItem::Record { kind, offset, time_ms, data } = item {
                    taken += data.len();
                    records.push(LogRecord { kind, offset, time_ms, data: data.to_vec() });
                }
            };
            let left = limit;
            let dir = terminal.log.dir();
            let progress = cursor
                .advance(dir, &mut self.scratch, left, &mut visit)
                .map_err(|error: io::Error| Refusal(ReplyCode::Storage, error.to_string()))?;
            match progress {
                ReadProgress::More if records.is_empty() => {}
                ReadProgress::More | ReadProgress::End => break,
            }
        }
        Ok(Event::LogChunk { seq, next: cursor.offset(), end, records })
    }

    fn metrics(&self) -> Vec<(String, u64)> {
        let logs = || self.terminals.iter().map(|(_, terminal)| &terminal.log);
        [
            ("terminals", self.terminals.len() as u64),
            ("terminals_opened", self.counters.opened),
            ("connections", self.connections.len() as u64),
            ("connections_refused", self.counters.refused_connections),
            ("closing", self.closing.len() as u64),
            ("output_bytes", self.counters.bytes_out),
            ("input_bytes", self.counters.bytes_in),
            ("children_reaped", self.counters.reaped),
            ("log_bytes", logs().map(crate::log::Log::bytes).sum()),
            ("log_lost_bytes", logs().map(crate::log::Log::lost).sum()),
            ("sync_failures", self.syncer.failures()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }
}

/// A request, or the sequence number and refusal of one that cannot be decoded.
enum DecodedRequest {
    Known(Request),
    Unknown { seq: Option<u32>, code: ReplyCode },
}

fn next(decoder: &mut wire::Decoder) -> Result<Option<DecodedRequest>, Malformed> {
    let Some(frame) = decoder.next_frame()? else { return Ok(None) };
    Ok(Some(match Request::decode(&frame) {
        Ok(Some(request)) => DecodedRequest::Known(request),
        Ok(None) => DecodedRequest::Unknown { seq: frame.seq(), code: ReplyCode::Unsupported },
        Err(_) => DecodedRequest::Unknown { seq: frame.seq(), code: ReplyCode::BadRequest },
    }))
}

fn ok(seq: u32) -> Answer {
    Ok(Some(Event::Reply { seq, code: ReplyCode::Ok, message: String::new() }))
}

fn failed(error: Errno) -> Refusal {
    Refusal(ReplyCode::Failed, error.to_string())
}
