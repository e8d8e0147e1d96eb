//! Handles each request of the wire protocol.

use std::time::Duration;

use host::log::{Entry, Reader};
use shell::{Output, now_ms};
use tokio::time::timeout;
use wire::{Event, Phase, ReplyCode, Request, Sections, Shell, StdinMode, Stream};

use super::super::follow::{InstanceGone, RemoteEnding};
use super::super::instance::PtyInput;
use super::super::saved::CommandKind;
use super::super::spool;
use super::super::terminal::{CommandSpec, RemoteTerminal, TerminalConfig};
use super::{
    HostEvent, MAX_READ_BYTES, RemoteHost, RequestRefusal, RequestResult, exited, logged, mark,
    number, ok, reply,
};
use model::CommandId;

/// How long a request waits for the instance.
const INSTANCE_TIMEOUT: Duration = Duration::from_secs(60);

impl RemoteHost {
    pub(super) fn handle(&mut self, connection: u64, seq: u32, request: Request) -> RequestResult {
        match request {
            Request::Hello { .. } => Ok(None),
            Request::Ping { .. } | Request::Shutdown { .. } => ok(seq),
            Request::Open {
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
                ..
            } => {
                let dir = String::from_utf8(dir).map_err(|_| ReplyCode::BadRequest)?.into();
                let opened = TerminalConfig { argv, cwd, env, dir, log_limit, shell };
                self.open(terminal, opened, (cols, rows), base_offset, state, &notice)?;
                ok(seq)
            }
            Request::Close { terminal, .. } => {
                self.close(connection, seq, &terminal)?;
                Ok(None)
            }
            Request::AckExit { terminal, .. } => {
                self.terminal(&terminal)?.exit.ok_or(ReplyCode::StillRunning)?;
                self.close(connection, seq, &terminal)?;
                Ok(None)
            }
            Request::List { .. } => {
                let terminals = self.terminals.values().map(RemoteTerminal::info).collect();
                Ok(Some(Event::Terminals { seq, terminals }))
            }
            Request::Attach { terminal, from, .. } => {
                self.attach(connection, seq, &terminal, from)?;
                Ok(None)
            }
            Request::Detach { terminal, .. } => {
                if let Some(connection) = self.connections.get_mut(&connection) {
                    connection.attached.remove(&terminal);
                }
                ok(seq)
            }
            Request::Input { terminal, write_id, data, .. } => {
                self.input(&terminal, write_id, &data)?;
                ok(seq)
            }
            Request::Resize { terminal, cols, rows, .. } => {
                if cols == 0 || rows == 0 {
                    let message = "a screen has at least one column and row".to_owned();
                    return Err(RequestRefusal(ReplyCode::BadRequest, message));
                }
                let (offset, time_ms) = (self.terminal(&terminal)?.log.end(), now_ms());
                let found = self.terminal(&terminal)?;
                found.size = (cols, rows);
                found.log.resize(time_ms, cols, rows);
                if let Some(pty) = found.pty_input() {
                    let _ = pty.try_send(PtyInput::Resize(cols, rows));
                }
                let event =
                    Event::Resized { terminal: terminal.clone(), offset, cols, rows, time_ms };
                self.tell_attached(&terminal, &event);
                self.keep(&terminal);
                ok(seq)
            }
            Request::Signal { terminal, signal, .. } => {
                let running =
                    self.terminal(&terminal)?.running.clone().ok_or(ReplyCode::CommandEnded)?;
                self.signal(connection, seq, &terminal, &running, signal)
            }
            Request::Trim { terminal, upto, .. } => {
                self.terminal(&terminal)?.log.trim(upto);
                ok(seq)
            }
            Request::ReadLog { terminal, from, limit, .. } => {
                self.read_log(seq, &terminal, from, limit).map(Some)
            }
            Request::Show { terminal, data, .. } => {
                self.terminal(&terminal)?;
                self.show(&terminal, &data);
                ok(seq)
            }
            Request::State { terminal, .. } => {
                let sections = self.terminal(&terminal)?.state.sections();
                Ok(Some(Event::StateReply { seq, sections }))
            }
            Request::Apply { terminal, script, .. } => {
                self.drivable(&terminal)?;
                let id = CommandId::fresh().to_string();
                self.awaited.insert(id.clone(), (connection, seq));
                self.terminal(&terminal)?.ask(CommandKind::Quiet, CommandSpec::own(id, script));
                self.advance(&terminal);
                Ok(None)
            }
            Request::Replace { terminal, state, .. } => {
                self.drivable(&terminal)?;
                self.terminal(&terminal)?.state = shell::State::from_sections(state);
                self.keep(&terminal);
                self.prompt(&terminal);
                ok(seq)
            }
            Request::Metrics { .. } => {
                let values = vec![("terminals".to_owned(), self.terminals.len() as u64)];
                Ok(Some(Event::MetricsReply { seq, values }))
            }
            // Without a PTY there is no program that reads a terminal without echo. The sockets are at the vendor.
            Request::Upgrade { .. }
            | Request::Ports { .. }
            | Request::EndWithProgram { .. }
            | Request::TypeSecret { .. } => Err(ReplyCode::Unsupported.into()),
            Request::Exec { .. } => self.exec(connection, seq, request),
            Request::ExecStdin { command, write_id, data, eof, .. } => {
                self.feed(connection, seq, &command, &write_id, &data, eof)
            }
            Request::ExecSignal { command, signal, .. } => {
                let terminal = self.terminal_of(&command)?;
                self.signal(connection, seq, &terminal, &command, signal)
            }
            Request::ExecRead { command, stream, from, limit, .. } => {
                self.exec_read(seq, &command, stream, from, limit).map(Some)
            }
            Request::ExecWatch { command, from_out, from_err, .. } => {
                let terminal = self.terminal_of(&command)?;
                self.send(connection, &reply(seq, ReplyCode::Ok, ""));
                if let Some(found) = self.connections.get_mut(&connection) {
                    found.watched.insert(command.clone(), [from_out, from_err]);
                }
                self.tell_so_far(connection, &terminal, &command);
                Ok(None)
            }
            Request::ExecUnwatch { command, .. } => {
                if let Some(connection) = self.connections.get_mut(&connection) {
                    connection.watched.remove(&command);
                }
                ok(seq)
            }
            Request::ExecCancel { command, .. } => {
                self.cancel(&command)?;
                ok(seq)
            }
            Request::ExecWithdraw { command, .. } => {
                self.withdraw(&command)?;
                ok(seq)
            }
            Request::ExecForget { command, .. } => {
                self.forget(&command)?;
                ok(seq)
            }
        }
    }

    pub(super) fn open(
        &mut self,
        id: String,
        opened: TerminalConfig,
        size: (u16, u16),
        base: u64,
        state: Sections,
        notice: &[u8],
    ) -> Result<(), RequestRefusal> {
        if self.terminals.contains_key(&id) {
            return Err(ReplyCode::Exists.into());
        }
        if opened.shell == Shell::Zsh {
            let why =
                "zsh is not available here: commands run in bash, or in sh if there is no bash";
            return Err(RequestRefusal(ReplyCode::NotExecutable, why.to_owned()));
        }
        let plain = matches!(opened.shell, Shell::Plain | Shell::Other(_));
        let terminal = RemoteTerminal::open(id.clone(), opened, size, base, state)
            .map_err(|error| RequestRefusal(ReplyCode::Storage, error.to_string()))?;
        self.terminals.insert(id.clone(), terminal);
        self.show(&id, notice);
        if !plain {
            let greeting = self.terminal(&id)?.greeting();
            self.show(&id, &greeting);
        }
        self.advance(&id);
        self.keep(&id);
        Ok(())
    }

    /// Kills the processes of a terminal and removes it. Replies when that is done, or when the instance does
    /// not answer: what is left ends with the instance.
    pub(super) fn close(&mut self, connection: u64, seq: u32, id: &str) -> Result<(), ReplyCode> {
        let mut terminal = self.terminals.remove(id).ok_or(ReplyCode::NoSuchTerminal)?;
        let _ = std::fs::remove_file(self.dir.join(id));
        for command in terminal.commands.values_mut() {
            command.outputs.iter_mut().for_each(Output::settle);
        }
        let text = spool::close(&terminal.inside(&self.root), id);
        let (commands, events) = (self.link.commands.clone(), self.events.clone());
        tokio::spawn(async move {
            if let Err(error) = commands.run(text).await {
                tracing::debug!(%error, "cannot remove a terminal inside its instance");
            }
            let _ = events.send(HostEvent::Reply(connection, reply(seq, ReplyCode::Ok, ""))).await;
        });
        Ok(())
    }

    pub(super) fn attach(
        &mut self,
        connection: u64,
        seq: u32,
        id: &str,
        from: u64,
    ) -> Result<(), RequestRefusal> {
        let terminal = self.terminal(id)?;
        let end = terminal.log.end();
        if from > end {
            return Err(RequestRefusal(ReplyCode::BadOffset, format!("the output ends at {end}")));
        }
        let mut reader = Reader::open(terminal.log.dir(), from);
        let exit = terminal.exit;
        self.send(connection, &reply(seq, ReplyCode::Ok, ""));
        if let Some(found) = self.connections.get_mut(&connection) {
            found.attached.insert(id.to_owned());
        }
        while let Ok(entries) = reader.read(MAX_READ_BYTES)
            && !entries.is_empty()
        {
            for entry in entries {
                if let Some(event) = logged(id, entry) {
                    self.send(connection, &event);
                }
            }
        }
        if let Some(code) = exit {
            self.send(connection, &exited(id, end, code));
        }
        Ok(())
    }

    pub(super) fn read_log(
        &mut self,
        seq: u32,
        id: &str,
        from: u64,
        limit: u32,
    ) -> Result<Event, RequestRefusal> {
        let log = &self.terminal(id)?.log;
        let end = log.end();
        if from > end {
            return Err(RequestRefusal(ReplyCode::BadOffset, format!("the output ends at {end}")));
        }
        let mut reader = Reader::open(log.dir(), from);
        let entries = reader
            .read((limit as usize).clamp(1, MAX_READ_BYTES))
            .map_err(|error| RequestRefusal(ReplyCode::Storage, error.to_string()))?;
        let records = entries.into_iter().filter_map(|entry| match entry {
            Entry::Record(record) => Some(wire::LogRecord {
                kind: record.kind,
                offset: record.offset,
                time_ms: record.time_ms,
                data: record.data,
            }),
            Entry::Gap { .. } => None,
        });
        Ok(Event::LogChunk { seq, next: reader.offset(), end, records: records.collect() })
    }

    pub(super) fn exec_read(
        &mut self,
        seq: u32,
        command: &str,
        stream: Stream,
        from: u64,
        limit: u32,
    ) -> Result<Event, RequestRefusal> {
        let id = self.terminal_of(command)?;
        let stream = number(stream)?;
        let found = self.command(&id, command).ok_or(ReplyCode::NoSuchCommand)?;
        let output = &found.outputs[stream];
        let limit = (limit as usize).clamp(1, MAX_READ_BYTES);
        let piece = output
            .read(from, limit)
            .map_err(|error| RequestRefusal(ReplyCode::Storage, error.to_string()))?;
        let end = found.phase == Phase::Sealed && piece.next >= output.written();
        let (offset, next, bytes) = (piece.offset, piece.next, piece.bytes);
        Ok(Event::ExecChunk { seq, offset, next, end, bytes })
    }

    /// Sends a connection the past events of a command.
    pub(super) fn tell_so_far(&mut self, connection: u64, id: &str, command: &str) {
        let Some(found) = self.terminals.get(id).and_then(|it| it.commands.get(command)) else {
            return;
        };
        let (phase, begun, done) = (found.phase, found.begun, found.done.clone());
        let [stdout_bytes, stderr_bytes] =
            [0, 1].map(|stream: usize| found.outputs[stream].written());
        if begun && let Some(started) = self.started(id, command) {
            self.send(connection, &started);
        }
        self.pump(id, command);
        if let Some(done) = done {
            self.send(connection, &done);
        }
        if phase == Phase::Sealed {
            let command = command.to_owned();
            self.send(connection, &Event::Sealed { command, stdout_bytes, stderr_bytes });
        }
    }

    pub(super) fn forget(&mut self, command: &str) -> Result<(), ReplyCode> {
        let id = self.terminal_of(command)?;
        match self.command(&id, command).map(|found| found.phase) {
            Some(Phase::Done | Phase::Sealed) => {}
            _ => return Ok(()),
        }
        for connection in self.connections.values_mut() {
            connection.watched.remove(command);
        }
        if let Some(found) = self.command(&id, command) {
            found.outputs.iter_mut().for_each(Output::settle);
        }
        self.drop_command(&id, command);
        Ok(())
    }

    pub(super) fn cancel(&mut self, command: &str) -> Result<(), ReplyCode> {
        let id = self.terminal_of(command)?;
        if self.unqueue(&id, command, RemoteEnding::Cancelled)? {
            return Ok(());
        }
        match self.command(&id, command) {
            Some(found) if found.phase == Phase::Running => {
                found.cancel.send_replace(true);
                Ok(())
            }
            Some(_) | None => Err(ReplyCode::CommandEnded),
        }
    }

    /// Drops a command that is still queued. A started command keeps running.
    pub(super) fn withdraw(&mut self, command: &str) -> Result<(), ReplyCode> {
        let id = self.terminal_of(command)?;
        if self.unqueue(&id, command, RemoteEnding::NotStarted)? {
            return Ok(());
        }
        match self.command(&id, command) {
            Some(found) if found.phase == Phase::Running => Err(ReplyCode::StillRunning),
            Some(_) | None => Err(ReplyCode::CommandEnded),
        }
    }

    /// Takes a command out of its terminal's queue; returns `false` if it is not queued.
    fn unqueue(
        &mut self,
        id: &str,
        command: &str,
        ending: RemoteEnding,
    ) -> Result<bool, ReplyCode> {
        let terminal = self.terminal(id)?;
        let Some(at) = terminal.queue.iter().position(|waits| waits == command) else {
            return Ok(false);
        };
        terminal.queue.remove(at);
        self.ended(id, command, ending);
        self.sealed(id, command);
        Ok(true)
    }

    pub(super) fn signal(
        &mut self,
        connection: u64,
        seq: u32,
        id: &str,
        command: &str,
        signal: i32,
    ) -> RequestResult {
        if !(1..=64).contains(&signal) {
            return Err(RequestRefusal(ReplyCode::BadRequest, format!("no signal {signal}")));
        }
        let found = self.command(id, command).ok_or(ReplyCode::NoSuchCommand)?;
        if found.phase != Phase::Running {
            return Err(ReplyCode::CommandEnded.into());
        }
        let command_dir = self.terminals.get(id).and_then(|it| it.command_dir(&self.root, command));
        let text = command_dir.ok_or(ReplyCode::NoSuchCommand)?.signal(signal);
        self.later(connection, seq, text, |word| match word {
            "running" => ReplyCode::Ok,
            _ => ReplyCode::CommandEnded,
        });
        Ok(None)
    }

    pub(super) fn feed(
        &mut self,
        connection: u64,
        seq: u32,
        command: &str,
        write_id: &str,
        data: &[u8],
        eof: bool,
    ) -> RequestResult {
        let id = self.terminal_of(command)?;
        let found = self.command(&id, command).ok_or(ReplyCode::NoSuchCommand)?;
        if found.phase != Phase::Running || found.spec.stdin != StdinMode::Open {
            return Err(ReplyCode::CommandEnded.into());
        }
        let write = match write_id {
            "" => mark(),
            id => blake3::hash(id.as_bytes()).to_hex()[..32].to_owned(),
        };
        let command_dir =
            self.terminals.get(&id).and_then(|it| it.command_dir(&self.root, command));
        let text = command_dir.ok_or(ReplyCode::NoSuchCommand)?.feed(&write, data, eof);
        self.later(connection, seq, text, |word| match word {
            "running" => ReplyCode::Ok,
            "known" => ReplyCode::AlreadyApplied,
            "full" => ReplyCode::InputFull,
            _ => ReplyCode::CommandEnded,
        });
        Ok(None)
    }

    /// Runs a script in the instance and replies with the code for its answer.
    pub(super) fn later(
        &self,
        connection: u64,
        seq: u32,
        text: String,
        code: impl Fn(&str) -> ReplyCode + Send + 'static,
    ) {
        let (link, events) = (self.link.clone(), self.events.clone());
        tokio::spawn(async move {
            let parse = |answer: &[u8]| spool::word(answer).filter(|word| word != "later");
            let (code, message) = match timeout(INSTANCE_TIMEOUT, link.ask(&text, parse)).await {
                Ok(Ok(word)) => (code(&word), ""),
                Ok(Err(InstanceGone { .. })) => (ReplyCode::CommandEnded, ""),
                Err(_) => (ReplyCode::Failed, "the instance does not answer"),
            };
            let _ = events.send(HostEvent::Reply(connection, reply(seq, code, message))).await;
        });
    }
}
