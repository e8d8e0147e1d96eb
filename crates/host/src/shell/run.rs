//! One run of a drive file: from its files to its end.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::process::Signal;

use super::commands::Status;
use super::dialect::Drive;
use super::driver::{Driver, Phase, Trust};
use super::overdue::{CONFIRM, DUMP};
use super::pipes::{Pipe, Read};
use super::procs::{self, Moment};
use super::queue::Waiting;
use super::reading::{STDIN, drain_pipe, watch};
use super::state::Changes;
use super::{At, Effect, End, Happened, Spec, screen};
use crate::wire::{Outcome, Phase as Progress, StdinMode};

/// How long a command runs before its terminal is made ready for a person's input.
pub(super) const SLOW: Duration = Duration::from_millis(30);

#[derive(Debug)]
pub(super) enum Job {
    Command {
        id: String,
        spec: Box<Spec>,
    },
    /// Reads the state after a person's command.
    Capture,
    /// Reads the state after a command that was interrupted.
    Reread {
        id: String,
        started: Instant,
        end: End,
    },
    Quiet {
        token: u64,
        pipes: [Pipe; 2],
    },
}

#[derive(Debug)]
pub(super) struct Run {
    pub(super) number: u64,
    pub(super) job: Job,
    pub(super) started: Instant,
    pub(super) moment: Moment,
    pub(super) typed: Instant,
    pub(super) begun: bool,
    pub(super) retyped: usize,
    pub(super) status: Option<i32>,
    pub(super) ended: Option<Instant>,
    pub(super) deadline: Option<Instant>,
    pub(super) check: Instant,
    pub(super) step: Duration,
    pub(super) cooked: bool,
    /// The terminal echoes by itself, and was told not to.
    pub(super) plain: bool,
    /// It leaves the shell alone and does not tell the state.
    pub(super) harmless: bool,
    pub(super) copy: screen::Copy,
    pub(super) touched: bool,
    /// To be sent when it has begun.
    pub(super) signal: Option<Signal>,
}

impl Driver {
    /// Looks whether the drive file has begun.
    pub(super) fn look_begun(&mut self) {
        if let Phase::Running(run) = &mut self.phase
            && !run.begun
        {
            // When all is gone, what ran has removed it: what has not begun is never taken for that.
            run.begun = self.paths.run.join("begun").exists() || !self.paths.are_there();
        }
    }

    /// Writes the files of a run and types the key.
    pub(super) fn begin(&mut self, job: Job, at: At, effects: &mut Vec<Effect>) -> io::Result<()> {
        self.number += 1;
        self.forget_dump();
        let mut run = Run::new(self.number, job, at.now, Moment::now());
        run.harmless = self.is_harmless(&run.job);
        if !run.harmless {
            self.trust = Trust::None;
        }
        if let Job::Command { id, spec } = &run.job {
            let (id, half) = (id.clone(), self.person.half_typed);
            let pipes = self.pair()?;
            effects.push(Effect::Show(self.prompt.typed(&spec.text, half)));
            let stdin = self.make_stdin(spec)?;
            if let Some(command) = self.commands.get_mut(&id) {
                command.pipes = pipes.map(Some);
                command.stdin = stdin;
                command.phase = Progress::Running;
                command.started = Some(at.now);
                command.started_ms = now_ms();
                command.attempts += 1;
            }
            self.watch_command(&id)?;
            self.began.write_all_at(id.as_bytes(), 0)?;
        }
        self.paths.remove("begun");
        let key = self.write_drive(&run, false)?;
        // A shell that edits lines after all has modes of its own, and hides nothing.
        run.plain = !self.setup.kind.edits_lines() && super::ending::hide_echo(at.master);
        effects.push(Effect::Type(key));
        if let Job::Command { id, .. } = &run.job
            && self.commands.get(id).is_some_and(|command| command.attempts == 1)
        {
            effects.push(Effect::Emit(Happened::Started { command: id.clone() }));
        }
        self.at_prompt = false;
        self.phase = Phase::Running(Box::new(run));
        Ok(())
    }

    /// Whether this plainly changes nothing in a shell that is what it told.
    fn is_harmless(&mut self, job: &Job) -> bool {
        let Job::Command { spec, .. } = job else { return false };
        if matches!(self.trust, Trust::Told) {
            let calm = self.setup.kind.calm(&self.state);
            self.trust = Trust::Calm(calm.filter(|_| procs::is_unextended(self.pid)));
        }
        let Trust::Calm(Some(calm)) = &self.trust else { return false };
        let alone = spec.env.is_empty() && spec.cwd.is_none() && self.key == 0;
        alone && calm.leaves_alone(&spec.text)
    }

    /// Waits for what the FIFOs of a command bring.
    pub(super) fn watch_command(&self, id: &str) -> io::Result<()> {
        let Some(command) = self.commands.get(id) else { return Ok(()) };
        for (stream, pipe) in command.pipes.iter().enumerate() {
            if let Some(pipe) = pipe {
                watch(&self.epoll, pipe, command.index * 4 + stream as u64)?;
            }
        }
        if let Some(stdin) = &command.stdin {
            let flags = epoll::EventFlags::OUT | epoll::EventFlags::ET;
            let token = epoll::EventData::new_u64(command.index * 4 + STDIN);
            epoll::add(&self.epoll, &stdin.fd, token, flags)?;
        }
        Ok(())
    }

    /// Gives the line editor its modes back: it does not look for itself after a key of ours, and a
    /// command may have left others.
    pub(super) fn uncook(&mut self, at: At) {
        if let (true, Some(raw)) = (self.setup.kind.edits_lines(), &self.raw) {
            super::ending::restore_modes(at.master, raw);
        }
        if let Phase::Running(run) = &mut self.phase {
            run.cooked = false;
        }
    }

    /// Writes the drive file; the key that runs it.
    pub(super) fn write_drive(&mut self, run: &Run, once: bool) -> io::Result<Vec<u8>> {
        let null = b"/dev/null".to_vec();
        let path = |pipe: &Pipe| pipe.path.as_os_str().as_bytes().to_vec();
        let mut drive = Drive {
            paths: &self.paths,
            number: run.number,
            key: self.key,
            once,
            harmless: run.harmless,
            interrupted: matches!(run.job, Job::Reread { .. }),
            state: &self.state,
            text: &[],
            status: self.status,
            env: &[],
            cwd: None,
            stdin: null.clone(),
            stdout: null.clone(),
            stderr: null,
        };
        let mut key = self.setup.kind.key(self.key, &self.paths);
        let text = match &run.job {
            Job::Command { id, spec } => {
                drive.env = &spec.env;
                drive.text = &spec.text;
                drive.cwd = spec.cwd.as_deref();
                if let Some(command) = self.commands.get(id) {
                    if let [Some(out), Some(err)] = &command.pipes {
                        drive.stdout = path(out);
                        drive.stderr = path(err);
                    }
                    if let Some(stdin) = &command.stdin {
                        drive.stdin = stdin.path.as_os_str().as_bytes().to_vec();
                    } else if spec.stdin == StdinMode::Given {
                        drive.stdin =
                            self.paths.run.join("stdin").into_os_string().into_encoded_bytes();
                    }
                }
                key = self.setup.kind.key_for(&drive);
                let mut text = self.setup.kind.preamble(&drive);
                if !run.harmless {
                    text.extend_from_slice(&spec.text);
                    self.paths.write("command", &text)?;
                }
                self.setup.kind.drive(&drive)
            }
            Job::Quiet { pipes: [out, err], .. } => {
                drive.stdout = path(out);
                drive.stderr = path(err);
                self.setup.kind.drive(&drive)
            }
            Job::Capture | Job::Reread { .. } => self.setup.kind.capture(&drive),
        };
        if self.status > 1 {
            let status = format!("return {}\n", self.status);
            self.paths.write("status", status.as_bytes())?;
        }
        self.paths.write("drive", &text)?;
        Ok(key)
    }

    /// Ends the run when its status and its state are there.
    pub(super) fn try_finish(&mut self, at: At, effects: &mut Vec<Effect>) {
        let Phase::Running(run) = &self.phase else { return };
        if run.status.is_none() || !self.dumped && !run.harmless {
            return;
        }
        self.drain(effects);
        let Phase::Running(run) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        self.at_prompt = !run.touched;
        if !run.harmless && !run.touched {
            self.trust = Trust::Told;
        }
        self.prompt.expect();
        let status = run.status.unwrap_or(0);
        match &run.job {
            Job::Capture => self.captured(&run, status, at, effects),
            Job::Command { .. } | Job::Quiet { .. } => {
                self.status = status;
                self.end_job(*run, (Outcome::Finished, Some(status), None), effects);
            }
            Job::Reread { end, .. } => {
                let mut end = *end;
                if !self.setup.kind.edits_lines() {
                    // Any error takes such a shell to its prompt, and its status says which.
                    end = (Outcome::Finished, Some(status), None);
                }
                self.status = end.1.unwrap_or(0);
                self.end_job(*run, end, effects);
            }
        }
        if !self.at_prompt {
            self.poll_soon(at.now + Duration::from_millis(1));
        }
        self.advance(at, effects);
    }

    pub(super) fn captured(&mut self, run: &Run, status: i32, at: At, effects: &mut Vec<Effect>) {
        let entered = self.person.entered.take();
        if run.touched {
            self.person.entered = Some(at.now);
        }
        let (before, counted) = (self.history.take(), self.typed);
        self.status = status;
        let changes = self.take_dump();
        self.due.clear();
        // A dump that was like the one before was not even read.
        self.history = self.history.take().or_else(|| before.clone());
        let told = self.history.is_some() && self.history != before;
        let typed = match self.typed {
            Some(count) => count > counted.unwrap_or(0) && (told || !self.person.hides),
            None => told,
        };
        if typed && self.history.is_some() {
            let text = self.history.as_deref().map(history_text).unwrap_or_default();
            let duration = entered.map_or(Duration::ZERO, |entered| run.started - entered);
            let exit_code = Some(status);
            effects.push(Effect::Emit(Happened::Typed { text, exit_code, duration, changes }));
        } else if !changes.0.is_empty() {
            effects.push(Effect::Emit(Happened::StateChanged { changes }));
        }
    }

    /// Ends what a run was for. The state is taken from the dump where there is one.
    pub(super) fn end_job(&mut self, run: Run, end: End, effects: &mut Vec<Effect>) {
        let restarted = self.pid == 0;
        let ended = run.ended.unwrap_or(run.started);
        let changes = if restarted {
            self.keep_status()
        } else if run.harmless {
            self.keep_limits()
        } else {
            self.take_dump()
        };
        match run.job {
            Job::Command { id, .. } => {
                self.due.note(&changes, Instant::now());
                effects.push(Effect::Show(run.copy.end()));
                let duration = ended.saturating_duration_since(run.started);
                self.finish_command(&id, end, duration, restarted, Some(changes), effects);
            }
            Job::Reread { id, started, end } => {
                self.due.note(&changes, Instant::now());
                let duration = run.started.saturating_duration_since(started);
                self.finish_command(&id, end, duration, restarted, Some(changes), effects);
            }
            Job::Quiet { token, .. } => {
                self.due.note(&changes, Instant::now());
                effects.push(Effect::Emit(Happened::Applied { token, exit_code: end.1 }));
                effects.push(Effect::Emit(Happened::StateChanged { changes }));
            }
            Job::Capture => {}
        }
    }

    /// A run was ended and its shell with it. A command that never began because its shell could not
    /// be driven is given another, which gets less of the state.
    pub(super) fn ended_early(&mut self, run: Run, end: End, effects: &mut Vec<Effect>) {
        let again = end.0 == Outcome::NotStarted
            && run
                .job
                .command()
                .and_then(|id| self.commands.get(id))
                .is_some_and(|command| command.attempts < 2);
        match run.job {
            Job::Command { id, spec } if again => {
                self.failures = 1;
                if let Some(command) = self.commands.get_mut(&id) {
                    command.pipes = [None, None];
                    command.stdin = None;
                    command.phase = Progress::Queued;
                }
                self.queue.push_front(Waiting::Command { spec, until: run.deadline });
            }
            _ => self.end_job(run, end, effects),
        }
    }

    pub(super) fn finish_command(
        &mut self,
        id: &str,
        end: End,
        duration: Duration,
        restarted: bool,
        changes: Option<Changes>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(command) = self.commands.get_mut(id) else { return };
        let (outcome, exit_code, signal) = end;
        command.stdin = None;
        command.phase = Progress::Done;
        let status = Status {
            outcome,
            exit_code,
            signal,
            duration,
            stdout_bytes: command.outputs[0].written(),
            stderr_bytes: command.outputs[1].written(),
            shell_restarted: restarted,
            changes: changes.unwrap_or_default(),
        };
        if std::mem::take(&mut command.waiting) {
            effects
                .push(Effect::Emit(Happened::Waiting { command: id.to_owned(), waiting: false }));
        }
        command.status = Some(Status { changes: Changes::default(), ..status.clone() });
        effects.push(Effect::Emit(Happened::Done { command: id.to_owned(), status }));
        self.seal(id, effects);
    }

    /// Gives the streams of a command back that nobody holds any more.
    pub(super) fn seal(&mut self, id: &str, effects: &mut Vec<Effect>) {
        let Some(command) = self.commands.get_mut(id) else { return };
        if command.phase != Progress::Done {
            return;
        }
        let mut open = false;
        for (stream, slot) in command.pipes.iter_mut().enumerate() {
            let Some(pipe) = slot else { continue };
            open |= drain_pipe(pipe, &mut command.outputs[stream], None) != Read::Closed;
        }
        if !open {
            self.close_streams(id, effects);
        }
    }

    /// Closes the streams of a command that has ended, even if other processes hold them.
    pub(super) fn close_streams(&mut self, id: &str, effects: &mut Vec<Effect>) {
        let Some(command) = self.commands.get_mut(id) else { return };
        command.phase = Progress::Sealed;
        let (stdout_bytes, stderr_bytes) =
            (command.outputs[0].written(), command.outputs[1].written());
        if let [Some(out), Some(err)] = std::mem::take(&mut command.pipes) {
            for pipe in [&out, &err] {
                let _ = epoll::delete(&self.epoll, &pipe.fd);
            }
            if out.reusable() && err.reusable() {
                self.spare = Some([out, err]);
            }
        }
        let forgotten = command.forgotten;
        effects.push(Effect::Emit(Happened::Sealed {
            command: id.to_owned(),
            stdout_bytes,
            stderr_bytes,
        }));
        if forgotten {
            self.commands.forget(id);
        }
    }
}

impl Run {
    pub(super) fn new(number: u64, job: Job, started: Instant, moment: Moment) -> Self {
        let deadline = match &job {
            Job::Command { spec, .. } => spec.timeout.map(|timeout| started + timeout),
            Job::Capture | Job::Reread { .. } | Job::Quiet { .. } => None,
        };
        Self {
            number,
            job,
            started,
            moment,
            typed: started,
            begun: false,
            retyped: 0,
            status: None,
            ended: None,
            deadline,
            check: started + SLOW,
            step: SLOW,
            cooked: false,
            plain: false,
            harmless: false,
            copy: screen::Copy::default(),
            touched: false,
            signal: None,
        }
    }

    pub(super) fn finish_at(&mut self, now: Instant) {
        self.ended.get_or_insert(now);
    }

    /// Whether the command has opened its streams: it has begun, and that was a while ago.
    pub(super) fn surely_open(&self, now: Instant) -> bool {
        self.begun && now >= self.started + SLOW
    }

    pub(super) fn next(&self) -> Instant {
        let mut due = match self.ended {
            Some(ended) => (ended + DUMP).min(self.check),
            None if !self.begun => (self.typed + CONFIRM).min(self.check),
            None => self.check,
        };
        if let (None, Some(deadline)) = (self.ended, self.deadline) {
            due = due.min(deadline);
        }
        due
    }
}

impl Job {
    pub(super) fn command(&self) -> Option<&String> {
        match self {
            Self::Command { id, .. } | Self::Reread { id, .. } => Some(id),
            Self::Capture | Self::Quiet { .. } => None,
        }
    }
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// An entry of the history without its number.
fn history_text(entry: &[u8]) -> Vec<u8> {
    let entry = entry.trim_ascii_start();
    let digits = entry.iter().take_while(|byte| byte.is_ascii_digit()).count();
    entry[digits..].strip_prefix(b"*").unwrap_or(&entry[digits..]).trim_ascii_start().to_vec()
}
