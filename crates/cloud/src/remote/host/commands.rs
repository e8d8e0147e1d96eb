//! A command's way: it waits, begins, writes, ends, and nothing is left of it.

use host::shell::{BEGAN, Keep, Output, QUEUE, remote};
use host::wire::{Code, Event, IfBusy, MAX_DATA, Outcome, Phase, Request, Sections, Stream};

use super::super::follow::{Ending, Gone, Heard, What};
use super::super::kept::Kind;
use super::super::terminal::{Spec, now_ms};
use super::{Answer, Host, exited, mark, reply};

/// Output of a forgotten command that is removed inside at once, and not with the next command.
const MUCH: u64 = 1 << 20;
/// Commands whose left-behind processes are listened to; of more, the oldest are not any more.
const LISTENED: usize = 8;

impl Host {
    pub(super) fn exec(&mut self, connection: u64, seq: u32, request: Request) -> Answer {
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
            return Err(Code::BadRequest.into());
        };
        self.drivable(&terminal)?;
        if self.terminal_of(&command).is_ok() {
            return Err(Code::CommandExists.into());
        }
        let found = self.terminal(&terminal)?;
        if if_busy == IfBusy::Fail && found.is_busy() {
            return Err(Code::Busy.into());
        }
        if found.queue.len() >= QUEUE {
            return Err(Code::QueueFull.into());
        }
        let keep = Keep { head: keep_head, tail: keep_tail };
        let given = stdin_data;
        found.ask(Kind::Exec, Spec { id: command, text, timeout_ms, stdin, given, env, cwd, keep });
        self.send(connection, &reply(seq, Code::Ok, ""));
        self.advance(&terminal);
        Ok(None)
    }

    /// Begins the next command of a terminal if it is its turn: named on disk, then shown, then done. It is
    /// told when it is known inside: until then it may begin elsewhere.
    pub(super) fn advance(&mut self, id: &str) {
        let Some(terminal) = self.terminals.get_mut(id) else { return };
        let Some(command) = terminal.next(mark()) else { return };
        let exec = terminal.commands.get(&command).is_some_and(|it| it.kind == Kind::Exec);
        let began = terminal.opened.dir.join(BEGAN);
        if exec && let Err(error) = std::fs::write(began, &command) {
            tracing::error!(terminal = id, %error, "cannot note which command begins");
        }
        let shown = terminal.begun(&command);
        let start = terminal.start(&self.root, &command);
        let done = std::mem::take(&mut terminal.done);
        self.show(id, &shown);
        self.keep(id);
        let Some(start) = start else { return };
        if let Some(player) = self.player(id, &command) {
            tokio::spawn(player.play(start, done));
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

    /// Something was heard of a command.
    pub(super) fn heard(&mut self, heard: Heard) {
        let Heard { terminal: id, command, what } = heard;
        if let What::Gone(gone) = &what {
            self.gone(&id, &command, gone);
            return;
        }
        let Some(terminal) = self.terminals.get_mut(&id) else { return };
        match what {
            What::Wrote(stream, offset, bytes) => {
                let shown = terminal.wrote(&command, stream, offset, &bytes);
                self.show(&id, &shown);
                self.pump(&id, &command);
                self.keep(&id);
            }
            What::Began => {
                let exec = terminal.commands.get_mut(&command).is_some_and(|found| {
                    let first = !std::mem::replace(&mut found.begun, true);
                    first && found.kind == Kind::Exec
                });
                let started = exec.then(|| self.started(&id, &command)).flatten();
                self.broadcast(started);
            }
            What::Over(ending) => self.ended(&id, &command, ending),
            What::Sealed => self.sealed(&id, &command),
            What::Screens(ptys, kept) => {
                if let Some(found) = terminal.commands.get_mut(&command) {
                    found.ptys = ptys;
                }
                self.keep(&id);
                let _ = kept.send(());
            }
            What::Plain(taken) => {
                if let Some(found) = terminal.commands.get_mut(&command) {
                    found.screen = None;
                }
                let _ = taken.send(());
            }
            What::Gone(_) => {}
        }
    }

    /// There is no such instance any more. A command that cannot have begun there is not named any more:
    /// it may begin elsewhere.
    pub(super) fn gone(&mut self, id: &str, command: &str, gone: &Gone) {
        tracing::info!(instance = self.instance, "an instance is gone, and its terminals with it");
        if let Some(terminal) = self.terminals.get(id).filter(|_| gone.unheard) {
            let began = terminal.opened.dir.join(BEGAN);
            if std::fs::read(&began).is_ok_and(|named| named == command.as_bytes()) {
                let _ = std::fs::write(began, "");
            }
        }
        let _ = std::fs::remove_dir_all(&self.dir);
        self.over.cancel();
    }

    pub(super) fn ended(&mut self, id: &str, command: &str, ending: Ending) {
        let Some(terminal) = self.terminals.get_mut(id) else { return };
        let Some(found) = terminal.commands.get(command).filter(|it| it.done.is_none()) else {
            // It was known how it ended: only what is left of it was looked for.
            return;
        };
        let (kind, text) = (found.kind, found.spec.text.clone());
        let [out, err] = [0, 1].map(|stream: usize| found.outputs[stream].written());
        let duration_us = now_ms().saturating_sub(found.started_ms) * 1000;
        let mut changed = (Sections::new(), Vec::new());
        let mut restarted = false;
        let (outcome, exit_code, signal) = match ending {
            Ending::Code(code, Some(told)) => {
                let ran = remote::read(&told, code, &found.mark);
                changed = terminal.state.absorb(ran.state);
                // A shell that a signal ends says before what it would have ended with.
                let signal = (code > 128 && code != ran.exit_code).then_some(code - 128);
                restarted = signal.is_some();
                (Outcome::Finished, Some(signal.map_or(ran.exit_code, |_| code)), signal)
            }
            Ending::Code(code, None) => {
                // Its shell ended before it could say anything.
                restarted = true;
                let signal = (129..=192).contains(&code).then_some(code - 128);
                (Outcome::Finished, Some(code), signal)
            }
            Ending::TimedOut => (Outcome::TimedOut, None, None),
            Ending::Cancelled => (Outcome::Cancelled, None, None),
            Ending::Lost => (Outcome::Lost, None, None),
            Ending::NotStarted => (Outcome::NotStarted, None, None),
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
            Kind::Exec => {
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
                self.listen_to_fewer(id);
            }
            Kind::Typed => {
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
            Kind::First | Kind::Quiet => {
                if let Some(terminal) = self.terminals.get_mut(id) {
                    terminal.ready |= kind == Kind::First;
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
            Kind::Program => {
                let code = exit_code.unwrap_or(-1);
                if let Some(terminal) = self.terminals.get_mut(id) {
                    terminal.exit = Some(code);
                }
                self.drop_command(id, command);
                self.tell_attached(id, &exited(id, offset, code));
                return;
            }
        }
        // A line that was typed meanwhile is next, but not before an exec that waited longer.
        let ahead = self.terminals.get_mut(id).and_then(|terminal| terminal.typed.pop_front());
        if kind != Kind::Quiet || ahead.is_some() {
            self.prompt(id);
        }
        if let Some(text) = ahead {
            self.show(id, text.as_bytes());
            self.typed(id, text);
        }
        self.advance(id);
    }

    pub(super) fn answer_quiet(&mut self, command: &str, exit_code: Option<i32>) {
        let Some((connection, seq)) = self.asked.remove(command) else { return };
        let answer = match exit_code {
            Some(0) => reply(seq, Code::Ok, ""),
            Some(code) => reply(seq, Code::Failed, &format!("the script ended with {code}")),
            None => reply(seq, Code::Failed, "the script did not run to its end"),
        };
        self.send(connection, &answer);
    }

    /// Nothing is left of a command.
    pub(super) fn sealed(&mut self, id: &str, command: &str) {
        let Some(found) = self.command(id, command) else { return };
        if found.kind != Kind::Exec || found.phase == Phase::Sealed {
            return;
        }
        found.phase = Phase::Sealed;
        let [stdout_bytes, stderr_bytes] =
            [0, 1].map(|stream: usize| found.outputs[stream].written());
        let command = command.to_owned();
        self.broadcast(Some(Event::Sealed { command, stdout_bytes, stderr_bytes }));
    }

    /// Of many commands that left processes behind, the oldest are listened to no more.
    pub(super) fn listen_to_fewer(&mut self, id: &str) {
        let Some(terminal) = self.terminals.get(id) else { return };
        let mut open: Vec<(u64, String)> = terminal
            .commands
            .iter()
            .filter(|(_, command)| command.phase == Phase::Done)
            .map(|(id, command)| (command.number, id.clone()))
            .collect();
        open.sort();
        let surplus = open.len().saturating_sub(LISTENED);
        for (_, command) in open.into_iter().take(surplus) {
            self.sealed(id, &command);
        }
    }

    /// Lets go of a command; its files inside go with the next one, or at once if they are large.
    pub(super) fn drop_command(&mut self, id: &str, command: &str) {
        let Some(terminal) = self.terminals.get_mut(id) else { return };
        let place = terminal.place(&self.root, command);
        let Some(dropped) = terminal.commands.remove(command) else { return };
        if dropped.number > 0 {
            let written: u64 = dropped.outputs.iter().map(Output::written).sum();
            terminal.done.push(dropped.number);
            if let Some(place) = place.filter(|_| written > MUCH) {
                let commands = self.reach.commands.clone();
                tokio::spawn(async move {
                    // The next command sees to it, too.
                    let _ = commands.run(place.forget()).await;
                });
            }
        }
        self.keep(id);
    }

    /// Sends those who watch a command what they have not got.
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
