//! Commands: requests to a terminal's driver, and the effects of the driver.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventFlags};
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use super::executions::OutputWatch;
use super::program::{ProgramLaunch, convert, is_id};
use super::refusal::{Answer, Refusal};
use super::slots::Key;
use super::terminal::{HostTerminal, ProcessExit};
use super::timers::Due;
use super::{Host, Token, now_ms};
use shell::{At, Driver, Effect, Happened, Keep, Spec, State};
use wire::{Event, MAX_DATA, ReplyCode, Request, Stream};

/// The most bytes in the answer to one `ExecRead`.
const MAX_CHUNK: usize = 1 << 20;

/// How often the records of a shell are polled if it has no inotify watch.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

impl Host {
    /// Adds a terminal's driver to the loop.
    pub(super) fn listen_to_driver(&mut self, key: Key) -> Result<(), Errno> {
        let Some(driver) = self.terminals.get(key).and_then(|found| found.driver.as_ref()) else {
            return Ok(());
        };
        epoll::add(&self.epoll, driver.fd(), Token::Driver(key).data(), EventFlags::IN)?;
        self.watch_records(key);
        // Records that appeared before the directory was watched.
        self.poll_records(key);
        self.drive(key, |driver, at, effects| driver.ready(at, effects));
        Ok(())
    }

    /// Watches the records of a terminal's shell, or polls them if the kernel grants no inotify instance
    /// or watch. A directory that is watched already stays watched.
    fn watch_records(&mut self, key: Key) {
        match self.add_watch(key) {
            Ok(()) => self.exec.polled.remove(&key),
            Err(_) => self.exec.polled.insert(key),
        };
    }

    fn add_watch(&mut self, key: Key) -> Result<(), Errno> {
        let driver = self.terminals.get(key).and_then(|found| found.driver.as_ref());
        let Some(driver) = driver else { return Ok(()) };
        let records = match self.exec.records.take() {
            Some(records) => records,
            None => {
                let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
                let records = inotify::init(flags)?;
                epoll::add(&self.epoll, &records, Token::Records.data(), EventFlags::IN)?;
                records
            }
        };
        let records = self.exec.records.insert(records);
        let flags = inotify::WatchFlags::CREATE | inotify::WatchFlags::ONLYDIR;
        let directory = inotify::add_watch(records, driver.ctl_dir(), flags)?;
        self.exec.directories.insert(directory, key);
        Ok(())
    }

    /// Reads the records of a terminal's shell.
    fn poll_records(&mut self, key: Key) {
        let driver = self.terminals.get(key).and_then(|found| found.driver.as_ref());
        for name in driver.map(|driver| driver.records()).unwrap_or_default() {
            self.drive(key, |driver, at, effects| driver.ctl(&name, at, effects));
        }
    }

    /// Reads the records of all terminals that have no watch.
    pub(super) fn poll_all_records(&mut self) {
        for key in self.exec.polled.clone() {
            self.poll_records(key);
            self.poll_later(key);
        }
    }

    /// Schedules the next poll, if a terminal without a watch awaits a record.
    fn poll_later(&mut self, key: Key) {
        let driver = self.terminals.get(key).and_then(|found| found.driver.as_ref());
        if self.exec.polled.contains(&key) && driver.is_some_and(|driver| driver.awaits_record()) {
            self.timers.arm(Due::Records, POLL_INTERVAL);
        }
    }

    /// Registers the commands of a driver that another executable handed over.
    pub(super) fn adopt_commands(&mut self, key: Key) {
        let Some(driver) = self.terminals.get(key).and_then(|found| found.driver.as_ref()) else {
            return;
        };
        for id in driver.commands().ids() {
            self.exec.commands.insert(id.clone(), key);
        }
    }

    /// Removes a driver from the loop whose shell is gone for good. The output of its commands can still
    /// be read.
    fn stop_driving(&mut self, key: Key) {
        if let Some(driver) = self.terminals.get(key).and_then(|found| found.driver.as_ref()) {
            let _ = epoll::delete(&self.epoll, driver.fd());
        }
        self.forget_driver(key);
    }

    /// Removes a terminal's driver and its commands.
    pub(super) fn release(&mut self, key: Key) {
        self.forget_driver(key);
        self.exec.commands.retain(|_, terminal| *terminal != key);
    }

    /// Removes a driver's watch and deadline.
    fn forget_driver(&mut self, key: Key) {
        self.exec.set_due(key, None);
        self.exec.polled.remove(&key);
        let gone: Vec<i32> = self
            .exec
            .directories
            .iter()
            .filter(|(_, terminal)| **terminal == key)
            .map(|(directory, _)| *directory)
            .collect();
        for directory in gone {
            self.exec.directories.remove(&directory);
            if let Some(records) = &self.exec.records {
                let _ = inotify::remove_watch(records, directory);
            }
        }
    }

    /// Calls a terminal's driver, and carries out its effects.
    pub(super) fn drive<T>(
        &mut self,
        key: Key,
        act: impl FnOnce(&mut Driver, At<'_>, &mut Vec<Effect>) -> T,
    ) -> Option<T> {
        let mut effects = Vec::new();
        let HostTerminal { driver, life, .. } = self.terminals.get_mut(key)?;
        let driver = driver.as_mut()?;
        let super::terminal::Life::Running { pty, .. } = life else { return None };
        let at = At { now: Instant::now(), master: pty.master.as_fd() };
        let result = act(driver, at, &mut effects);
        let due = driver.deadline();
        self.exec.set_due(key, due);
        for effect in effects {
            self.perform(key, effect);
        }
        self.poll_later(key);
        Some(result)
    }

    fn perform(&mut self, key: Key, effect: Effect) {
        match effect {
            Effect::Type(bytes) => {
                if let Some(terminal) = self.terminals.get_mut(key) {
                    terminal.type_once("", &bytes);
                }
                self.await_input(key);
            }
            Effect::Show(bytes) => self.show(key, &bytes),
            Effect::Respawn(launch) => match self.start_again(key, &convert(launch)) {
                Ok(pid) => {
                    let pid = pid.as_raw_nonzero().get();
                    self.drive(key, |driver, at, _| driver.launched(pid, at.now));
                    self.tell(key, |terminal, offset| Event::Restarted {
                        terminal,
                        pid: u32::try_from(pid).unwrap_or(0),
                        offset,
                        time_ms: now_ms(),
                    });
                }
                Err(_) => {
                    self.drive(key, |driver, at, effects| driver.abandon(at, effects));
                }
            },
            Effect::Emit(happened) => self.happened(key, happened),
        }
    }

    /// Starts the next shell, whose files may be in another directory.
    fn start_again(&mut self, key: Key, launch: &ProgramLaunch) -> Result<Pid, Refusal> {
        self.watch_records(key);
        self.respawn(key, launch)
    }

    /// Reports an event of a terminal to every connection.
    fn tell(&mut self, key: Key, event: impl FnOnce(String, u64) -> Event) {
        let Some(terminal) = self.terminals.get(key) else { return };
        let event = event(terminal.id.clone(), terminal.log.end());
        self.broadcast(&event);
    }

    fn happened(&mut self, key: Key, happened: Happened) {
        match happened {
            Happened::Started { command } => self.tell(key, |terminal, offset| Event::Started {
                command,
                terminal,
                offset,
                time_ms: now_ms(),
            }),
            Happened::Grew { command } => self.pump_command(key, &command),
            Happened::Done { command, status } => {
                self.pump_command(key, &command);
                self.tell(key, |terminal, offset| status.event(command, terminal, offset));
            }
            Happened::Sealed { command, stdout_bytes, stderr_bytes } => {
                self.pump_command(key, &command);
                self.tell(key, |_, _| Event::Sealed { command, stdout_bytes, stderr_bytes });
            }
            Happened::Waiting { command, waiting } => {
                self.tell(key, |_, _| Event::Waiting { command, waiting });
            }
            Happened::Typed { text, exit_code, duration, changes: (changed, removed) } => {
                self.tell(key, |terminal, offset| Event::Typed {
                    terminal,
                    text,
                    exit_code,
                    duration_us: duration.as_micros() as u64,
                    offset,
                    time_ms: now_ms(),
                    changed,
                    removed,
                });
            }
            Happened::StateChanged { changes: (changed, removed) } => {
                self.tell(key, |terminal, offset| Event::StateChanged {
                    terminal,
                    offset,
                    changed,
                    removed,
                });
            }
            Happened::Applied { token, exit_code } => {
                if let Some((connection, seq)) = self.exec.scripts.remove(&token) {
                    let (code, message) = match exit_code {
                        Some(0) => (ReplyCode::Ok, String::new()),
                        Some(code) => (ReplyCode::Failed, format!("the script ended with {code}")),
                        None => (ReplyCode::Failed, "the script did not run to its end".to_owned()),
                    };
                    self.reply(connection, seq, code, message);
                }
            }
            Happened::Ended { code, signal } => {
                self.stop_driving(key);
                let code = code.unwrap_or(-1);
                self.terminal_ended(key, ProcessExit { code, signal: signal.unwrap_or(0) });
            }
        }
    }

    /// Passes the exit of a terminal's program to its driver. Returns whether it has one.
    pub(super) fn shell_ended(&mut self, key: Key, exit: ProcessExit) -> bool {
        let code = (exit.signal == 0).then_some(exit.code);
        let signal = (exit.signal != 0).then_some(exit.signal);
        self.drive(key, |driver, at, effects| driver.exited(code, signal, at, effects)).is_some()
    }

    /// Passes a terminal's output to its driver before it is logged: what the command wrote before it
    /// comes first.
    pub(super) fn before_output(&mut self, key: Key, filled: usize) {
        if self.terminals.get(key).is_none_or(|terminal| terminal.driver.is_none()) {
            return;
        }
        // The driver's own output goes through the same buffer.
        let kept = self.buffer[..filled].to_vec();
        self.read_records();
        if self.exec.polled.contains(&key) {
            self.poll_records(key);
        }
        self.drive(key, |driver, at, effects| driver.output(&kept, at, effects));
        self.buffer[..filled].copy_from_slice(&kept);
    }

    /// Reads the records that inotify reports.
    pub(super) fn read_records(&mut self) {
        let Some(records) = &self.exec.records else { return };
        let mut found = Vec::new();
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(records, &mut space);
        while let Ok(event) = reader.next() {
            let name = event.file_name().and_then(|name| name.to_str().ok()).map(str::to_owned);
            found.extend(name.map(|name| (event.wd(), name)));
            // The reader would call the kernel again after its last event; most turns need not.
            if reader.is_buffer_empty() {
                break;
            }
        }
        for (directory, name) in found {
            if let Some(key) = self.exec.directories.get(&directory).copied() {
                self.drive(key, |driver, at, effects| driver.ctl(&name, at, effects));
            }
        }
    }

    pub(super) fn driver_ready(&mut self, key: Key) {
        self.drive(key, |driver, at, effects| driver.ready(at, effects));
    }

    /// Calls the drivers whose deadline has passed.
    pub(super) fn tick_drivers(&mut self) {
        let now = Instant::now();
        let mut due = Vec::new();
        while let Some((at, key)) = self.exec.due.first().copied()
            && at <= now
        {
            self.exec.set_due(key, None);
            due.push(key);
        }
        for key in due {
            self.drive(key, |driver, at, effects| driver.tick(at, effects));
        }
    }

    /// Sends new output of a command to its watchers.
    fn pump_command(&mut self, key: Key, command: &str) {
        let Some(watches) = self.exec.watches.get_mut(command) else { return };
        let Some(driver) = self.terminals.get(key).and_then(|found| found.driver.as_ref()) else {
            return;
        };
        let mut written = Vec::new();
        for watch in watches {
            let Some(connection) = self.connections.get_mut(watch.connection) else { continue };
            written.push(watch.connection);
            for (nth, stream) in [Stream::Stdout, Stream::Stderr].into_iter().enumerate() {
                while connection.has_room() {
                    let read = driver.commands().read(command, nth, watch.next[nth], MAX_DATA);
                    let Some(Ok((piece, _))) = read else { break };
                    if piece.bytes.is_empty() {
                        break;
                    }
                    watch.next[nth] = piece.next;
                    let command = command.to_owned();
                    let (offset, bytes) = (piece.offset, piece.bytes);
                    connection.push(&Event::CommandOutput { command, stream, offset, bytes });
                }
            }
            if !connection.has_room() && !connection.lagging.iter().any(|known| known == command) {
                connection.lagging.push_back(command.to_owned());
            }
        }
        for connection in written {
            self.flush(connection);
        }
    }

    /// Sends the command output for which a connection had no room before.
    pub(super) fn catch_up_commands(&mut self, connection: Key) {
        loop {
            let Some(found) = self.connections.get_mut(connection) else { return };
            if !found.has_room() {
                return;
            }
            let Some(command) = found.lagging.pop_front() else { return };
            if let Ok(key) = self.find_command(&command) {
                self.pump_command(key, &command);
            }
        }
    }

    fn find_command(&self, command: &str) -> Result<Key, Refusal> {
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
        let gone = |code: Option<Result<(), ReplyCode>>| match code {
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
                let taken = self.drive(key, |driver, at, effects| {
                    let taken = driver.exec(spec, at, effects);
                    std::mem::swap(effects, &mut later);
                    taken
                });
                gone(taken)?;
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
                let taken =
                    self.drive(key, |driver, at, effects| driver.apply(token, script, at, effects));
                gone(taken).inspect_err(|_| {
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
                gone(self.drive(key, |driver, at, _| {
                    driver.stdin(&command, &write_id, &data, eof, at)
                }))?;
                ok(seq)
            }
            Request::ExecSignal { seq, command, signal } => {
                let key = self.find_command(&command)?;
                let signal =
                    Signal::from_named_raw(signal).ok_or_else(|| refused(ReplyCode::BadRequest))?;
                gone(self.drive(key, |driver, at, effects| {
                    driver.signal(&command, signal, at, effects)
                }))?;
                ok(seq)
            }
            Request::ExecCancel { seq, command } => {
                let key = self.find_command(&command)?;
                gone(self.drive(key, |driver, at, effects| driver.cancel(&command, at, effects)))?;
                ok(seq)
            }
            Request::ExecWithdraw { seq, command } => {
                let key = self.find_command(&command)?;
                gone(
                    self.drive(key, |driver, at, effects| driver.withdraw(&command, at, effects)),
                )?;
                ok(seq)
            }
            Request::ExecRead { seq, command, stream, from, limit } => {
                let key = self.find_command(&command)?;
                let nth = number(stream)?;
                self.drive(key, |driver, _, _| driver.persist(&command));
                let driver = self.terminals.get(key).and_then(|found| found.driver.as_ref());
                let limit = (limit as usize).clamp(1, MAX_CHUNK);
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
                self.tell_so_far(key, connection, &command);
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

    /// Sends a connection the events of a command that happened before the request.
    fn tell_so_far(&mut self, key: Key, connection: Key, command: &str) {
        let mut last = Vec::new();
        if let Some(terminal) = self.terminals.get(key)
            && let Some(driver) = &terminal.driver
        {
            let (id, offset) = (terminal.id.clone(), terminal.log.end());
            let events = driver.commands().reported(command, id, offset);
            if let (Some(found), Some(started)) =
                (self.connections.get_mut(connection), events.started)
            {
                found.push(&started);
            }
            last.extend(events.ended);
        }
        self.pump_command(key, command);
        if let Some(found) = self.connections.get_mut(connection) {
            for event in &last {
                found.push(event);
            }
        }
        self.flush(connection);
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
