//! The life cycle of a command: queued, running, done, sealed.

use shell::{BEGAN, Keep, MAX_QUEUED_COMMANDS, Output, now_ms, remote};
use wire::{Event, IfBusy, MAX_DATA, Outcome, Phase, ReplyCode, Request, Sections, Stream};

use super::super::follow::{CommandReport, CommandUpdate, InstanceGone, RemoteEnding};
use super::super::saved::CommandKind;
use super::super::terminal::CommandSpec;
use super::{RemoteHost, RequestResult, exited, mark, reply};

/// Output larger than this is removed inside at once when its command is forgotten, not with the next
/// command.
const LARGE_OUTPUT_BYTES: u64 = 1 << 20;
/// How many ended commands with background processes are still followed; the oldest are sealed first.
const MAX_LINGERING: usize = 8;

impl RemoteHost {
    pub(super) fn exec(&mut self, connection: u64, seq: u32, request: Request) -> RequestResult {
        let Request::Exec {
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
            ..
        } = request
        else {
            return Err(ReplyCode::BadRequest.into());
        };
        self.drivable(&terminal)?;
        if self.terminal_of(&command).is_ok() {
            return Err(ReplyCode::CommandExists.into());
        }
        let found = self.terminal(&terminal)?;
        if if_busy == IfBusy::Fail && found.is_busy() {
            return Err(ReplyCode::Busy.into());
        }
        if found.queue.len() >= MAX_QUEUED_COMMANDS {
            return Err(ReplyCode::QueueFull.into());
        }
        let keep = Keep { head: keep_head, tail: keep_tail };
        let given = stdin_data;
        found.ask(
            CommandKind::Exec,
            CommandSpec { id: command, text, timeout_ms, stdin, given, env, cwd, keep },
        );
        self.send(connection, &reply(seq, ReplyCode::Ok, ""));
        self.advance(&terminal);
        Ok(None)
    }

    /// Starts the next queued command if none runs: recorded on disk first, then shown, then started. `Started`
    /// is sent only when the instance confirms it: until then the command may start on another instance.
    pub(super) fn advance(&mut self, id: &str) {
        let Some(terminal) = self.terminals.get_mut(id) else { return };
        let Some(command) = terminal.next(mark()) else { return };
        let exec = terminal.commands.get(&command).is_some_and(|it| it.kind == CommandKind::Exec);
        let began = terminal.opened.dir.join(BEGAN);
        if exec && let Err(error) = std::fs::write(began, &command) {
            tracing::error!(terminal = id, %error, "cannot record which command starts");
        }
        let shown = terminal.begun(&command);
        let start = terminal.start(&self.root, &command);
        let done = std::mem::take(&mut terminal.done);
        self.show(id, &shown);
        self.keep(id);
        let Some(start) = start else { return };
        if let Some(runner) = self.runner(id, &command) {
            tokio::spawn(runner.run(start, done));
        } else if let Some(follower) = self.follower(id, &command) {
            tokio::spawn(follower.start(start, done));
        }
    }

    pub(super) fn started(&self, id: &str, command: &str) -> Option<Event> {
        let terminal = self.terminals.get(id)?;
        let time_ms = terminal.commands.get(command)?.started_ms;
        let (terminal, offset) = (id.to_owned(), terminal.log.end());
        Some(Event::Started { command: command.to_owned(), terminal, offset, time_ms })
    }

    pub(super) fn updated(&mut self, update: CommandUpdate) {
        let CommandUpdate { terminal: id, command, what } = update;
        if let CommandReport::Gone(gone) = &what {
            self.gone(&id, &command, gone);
            return;
        }
        let Some(terminal) = self.terminals.get_mut(&id) else { return };
        match what {
            CommandReport::Output(stream, offset, bytes) => {
                let shown = terminal.wrote(&command, stream, offset, &bytes);
                self.show(&id, &shown);
                self.pump(&id, &command);
                self.keep(&id);
            }
            CommandReport::Started => {
                let exec = terminal.commands.get_mut(&command).is_some_and(|found| {
                    let first = !std::mem::replace(&mut found.begun, true);
                    first && found.kind == CommandKind::Exec
                });
                let started = exec.then(|| self.started(&id, &command)).flatten();
                self.broadcast(started);
            }
            CommandReport::Ended(ending) => self.ended(&id, &command, ending),
            CommandReport::Sealed => self.sealed(&id, &command),
            CommandReport::Ptys(ptys, saved) => {
                if let Some(found) = terminal.commands.get_mut(&command) {
                    found.ptys = ptys;
                }
                self.keep(&id);
                let _ = saved.send(());
            }
            CommandReport::NoPty(taken) => {
                if let Some(found) = terminal.commands.get_mut(&command) {
                    found.pty = None;
                }
                let _ = taken.send(());
            }
            CommandReport::Gone(_) => {}
        }
    }

    /// Stops the host because its instance no longer exists. A command that cannot have started there is removed from
    /// the record of started commands, so that it may start on another instance.
    pub(super) fn gone(&mut self, id: &str, command: &str, gone: &InstanceGone) {
        tracing::info!(
            instance = self.instance,
            "the instance no longer exists; its terminals are closed"
        );
        if let Some(terminal) = self.terminals.get(id).filter(|_| gone.never_ran) {
            let began = terminal.opened.dir.join(BEGAN);
            if std::fs::read(&began).is_ok_and(|named| named == command.as_bytes()) {
                let _ = std::fs::write(began, "");
            }
        }
        let _ = std::fs::remove_dir_all(&self.dir);
        self.stopped.cancel();
    }

    pub(super) fn ended(&mut self, id: &str, command: &str, ending: RemoteEnding) {
        let Some(terminal) = self.terminals.get_mut(id) else { return };
        let Some(found) = terminal.commands.get(command).filter(|it| it.done.is_none()) else {
            // Its end is already known; only its background processes were followed.
            return;
        };
        let (kind, text) = (found.kind, found.spec.text.clone());
        let [out, err] = [0, 1].map(|stream: usize| found.outputs[stream].written());
        let duration_us = now_ms().saturating_sub(found.started_ms) * 1000;
        let mut changed = (Sections::new(), Vec::new());
        let mut restarted = false;
        let (outcome, exit_code, signal) = match ending {
            RemoteEnding::Code(code, Some(state)) => {
                let ran = remote::read(&state, code, &found.mark);
                changed = terminal.state.absorb(ran.state);
                // A shell killed by a signal has saved the exit code it would have had.
                let signal = (code > 128 && code != ran.exit_code).then_some(code - 128);
                restarted = signal.is_some();
                (Outcome::Finished, Some(signal.map_or(ran.exit_code, |_| code)), signal)
            }
            RemoteEnding::Code(code, None) => {
                // The shell ended before it saved its state.
                restarted = true;
                let signal = (129..=192).contains(&code).then_some(code - 128);
                (Outcome::Finished, Some(code), signal)
            }
            RemoteEnding::TimedOut => (Outcome::TimedOut, None, None),
            RemoteEnding::Cancelled => (Outcome::Cancelled, None, None),
            RemoteEnding::Lost => (Outcome::Lost, None, None),
            RemoteEnding::NotStarted => (Outcome::NotStarted, None, None),
        };
        let (changed, removed) = changed;
        if terminal.running.as_deref() == Some(command) {
            terminal.running = None;
        }
        let shown = terminal.ended(command);
        self.show(id, &shown);
        let offset = self.terminals.get(id).map_or(0, |terminal| terminal.log.end());
        let terminal = id.to_owned();
        match kind {
            CommandKind::Exec => {
                let done = Event::Done {
                    command: command.to_owned(),
                    terminal,
                    outcome,
                    exit_code,
                    signal,
                    duration_us,
                    stdout_bytes: out,
                    stderr_bytes: err,
                    shell_restarted: restarted,
                    offset,
                    changed,
                    removed,
                };
                if let Some(found) = self.command(id, command) {
                    (found.phase, found.done) = (Phase::Done, Some(done.clone()));
                }
                self.keep(id);
                self.broadcast(Some(done));
                self.limit_lingering(id);
            }
            CommandKind::Typed => {
                let time_ms = now_ms();
                let typed = Event::Typed {
                    terminal,
                    text,
                    exit_code,
                    duration_us,
                    offset,
                    time_ms,
                    changed,
                    removed,
                };
                self.broadcast(Some(typed));
                self.drop_command(id, command);
            }
            CommandKind::First | CommandKind::Quiet => {
                if let Some(terminal) = self.terminals.get_mut(id) {
                    terminal.ready |= kind == CommandKind::First;
                }
                if !changed.is_empty() || !removed.is_empty() {
                    self.broadcast(Some(Event::StateChanged {
                        terminal,
                        offset,
                        changed,
                        removed,
                    }));
                }
                self.drop_command(id, command);
                self.answer_quiet(command, exit_code);
            }
            CommandKind::Program => {
                let code = exit_code.unwrap_or(-1);
                if let Some(terminal) = self.terminals.get_mut(id) {
                    terminal.exit = Some(code);
                }
                self.drop_command(id, command);
                self.tell_attached(id, &exited(id, offset, code));
                return;
            }
        }
        // A line typed meanwhile is next, but not before an exec that was queued earlier.
        let ahead = self.terminals.get_mut(id).and_then(|terminal| terminal.typed.pop_front());
        if kind != CommandKind::Quiet || ahead.is_some() {
            self.prompt(id);
        }
        if let Some(text) = ahead {
            self.show(id, text.as_bytes());
            self.typed(id, text);
        }
        self.advance(id);
    }

    pub(super) fn answer_quiet(&mut self, command: &str, exit_code: Option<i32>) {
        let Some((connection, seq)) = self.awaited.remove(command) else { return };
        let answer = match exit_code {
            Some(0) => reply(seq, ReplyCode::Ok, ""),
            Some(code) => reply(seq, ReplyCode::Failed, &format!("the script exited with {code}")),
            None => reply(seq, ReplyCode::Failed, "the script was interrupted"),
        };
        self.send(connection, &answer);
    }

    /// Marks a command as sealed: none of its processes is left, so its output is complete.
    pub(super) fn sealed(&mut self, id: &str, command: &str) {
        let Some(found) = self.command(id, command) else { return };
        if found.kind != CommandKind::Exec || found.phase == Phase::Sealed {
            return;
        }
        found.phase = Phase::Sealed;
        let [stdout_bytes, stderr_bytes] =
            [0, 1].map(|stream: usize| found.outputs[stream].written());
        let command = command.to_owned();
        self.broadcast(Some(Event::Sealed { command, stdout_bytes, stderr_bytes }));
    }

    /// Seals the oldest commands with background processes beyond [`MAX_LINGERING`].
    pub(super) fn limit_lingering(&mut self, id: &str) {
        let Some(terminal) = self.terminals.get(id) else { return };
        let mut open: Vec<(u64, String)> = terminal
            .commands
            .iter()
            .filter(|(_, command)| command.phase == Phase::Done)
            .map(|(id, command)| (command.number, id.clone()))
            .collect();
        open.sort();
        let surplus = open.len().saturating_sub(MAX_LINGERING);
        for (_, command) in open.into_iter().take(surplus) {
            self.sealed(id, &command);
        }
    }

    /// Forgets a command. Its files inside are removed with the next command, or at once if they are large.
    pub(super) fn drop_command(&mut self, id: &str, command: &str) {
        let Some(terminal) = self.terminals.get_mut(id) else { return };
        let command_dir = terminal.command_dir(&self.root, command);
        let Some(dropped) = terminal.commands.remove(command) else { return };
        if dropped.number > 0 {
            let written: u64 = dropped.outputs.iter().map(Output::written).sum();
            terminal.done.push(dropped.number);
            if let Some(command_dir) = command_dir.filter(|_| written > LARGE_OUTPUT_BYTES) {
                let commands = self.link.commands.clone();
                tokio::spawn(async move {
                    // The next command repeats this.
                    let _ = commands.run(command_dir.forget()).await;
                });
            }
        }
        self.keep(id);
    }

    /// Sends new output of a command to the connections that watch it.
    pub(super) fn pump(&mut self, id: &str, command: &str) {
        let Some(found) = self.terminals.get(id).and_then(|it| it.commands.get(command)) else {
            return;
        };
        let mut events = Vec::new();
        for (number, connection) in &mut self.connections {
            let Some(next) = connection.watched.get_mut(command) else { continue };
            for (stream, name) in [Stream::Stdout, Stream::Stderr].into_iter().enumerate() {
                while let Ok(piece) = found.outputs[stream].read(next[stream], MAX_DATA)
                    && !piece.bytes.is_empty()
                {
                    next[stream] = piece.next;
                    let (command, stream) = (command.to_owned(), name);
                    let (offset, bytes) = (piece.offset, piece.bytes);
                    events.push((*number, Event::CommandOutput { command, stream, offset, bytes }));
                }
            }
        }
        for (connection, event) in events {
            self.send(connection, &event);
        }
    }
}
