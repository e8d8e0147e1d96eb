//! The drivers of shells: passing them events, and carrying out their effects.

use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::epoll::{self, EventFlags};
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::process::Pid;

use super::Host;
use super::program::{ProgramLaunch, convert};
use super::refusal::Refusal;
use super::slots::Key;
use super::terminal::{HostTerminal, ProcessExit, ProgramState};
use super::token::EventToken;
use shell::{At, Driver, DriverEvent, Effect, now_ms};
use wire::{Event, ReplyCode};

impl Host {
    /// Adds a terminal's driver to the loop.
    pub(super) fn listen_to_driver(&mut self, key: Key) -> Result<(), Errno> {
        let Some(driver) = self.terminals.get(key).and_then(|found| found.driver.as_ref()) else {
            return Ok(());
        };
        epoll::add(&self.epoll, driver.fd(), EventToken::Driver(key).data(), EventFlags::IN)?;
        self.watch_records(key);
        // Records may have appeared before the directory was watched.
        self.poll_records(key);
        self.drive(key, |driver, at, effects| driver.ready(at, effects));
        Ok(())
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

    /// Removes the driver of a terminal that has ended from the loop. The output of its commands can still
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
        let HostTerminal { driver, program, .. } = self.terminals.get_mut(key)?;
        let driver = driver.as_mut()?;
        let ProgramState::Running { pty, .. } = program else { return None };
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

    pub(super) fn perform(&mut self, key: Key, effect: Effect) {
        match effect {
            Effect::Type(bytes) => {
                if let Some(terminal) = self.terminals.get_mut(key) {
                    terminal.write_once("", &bytes);
                }
                self.await_input(key);
            }
            Effect::Show(bytes) => self.show(key, &bytes),
            Effect::Respawn(launch) => match self.start_next_shell(key, &convert(launch)) {
                Ok(pid) => {
                    let pid = pid.as_raw_nonzero().get();
                    self.drive(key, |driver, at, _| driver.launched(pid, at.now));
                    self.report(key, |terminal, offset| Event::Restarted {
                        terminal,
                        pid: u32::try_from(pid).unwrap_or(0),
                        offset,
                        time_ms: now_ms(),
                    });
                }
                Err(_) => {
                    self.drive(key, |driver, at, effects| driver.launch_failed(at, effects));
                }
            },
            Effect::Emit(event) => self.emit(key, event),
        }
    }

    /// Starts the next shell, whose run directory may be a new one.
    fn start_next_shell(&mut self, key: Key, launch: &ProgramLaunch) -> Result<Pid, Refusal> {
        self.watch_records(key);
        self.respawn(key, launch)
    }

    /// Reports an event of a terminal to every connection.
    fn report(&mut self, key: Key, event: impl FnOnce(String, u64) -> Event) {
        let Some(terminal) = self.terminals.get(key) else { return };
        let event = event(terminal.id.clone(), terminal.log.end());
        self.broadcast(&event);
    }

    fn emit(&mut self, key: Key, event: DriverEvent) {
        match event {
            DriverEvent::Started { command } => self.report(key, |terminal, offset| {
                Event::Started { command, terminal, offset, time_ms: now_ms() }
            }),
            DriverEvent::Grew { command } => self.pump_command(key, &command),
            DriverEvent::Done { command, status } => {
                self.pump_command(key, &command);
                self.report(key, |terminal, offset| status.event(command, terminal, offset));
            }
            DriverEvent::Sealed { command, stdout_bytes, stderr_bytes } => {
                self.pump_command(key, &command);
                self.report(key, |_, _| Event::Sealed { command, stdout_bytes, stderr_bytes });
            }
            DriverEvent::Waiting { command, waiting } => {
                self.report(key, |_, _| Event::Waiting { command, waiting });
            }
            DriverEvent::Typed { text, exit_code, duration, changes: (changed, removed) } => {
                self.report(key, |terminal, offset| Event::Typed {
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
            DriverEvent::StateChanged { changes: (changed, removed) } => {
                self.report(key, |terminal, offset| Event::StateChanged {
                    terminal,
                    offset,
                    changed,
                    removed,
                });
            }
            DriverEvent::Applied { token, exit_code } => {
                if let Some((connection, seq)) = self.exec.scripts.remove(&token) {
                    let (code, message) = match exit_code {
                        Some(0) => (ReplyCode::Ok, String::new()),
                        Some(code) => {
                            (ReplyCode::Failed, format!("the script exited with code {code}"))
                        }
                        None => (ReplyCode::Failed, "the script did not run to its end".to_owned()),
                    };
                    self.reply(connection, seq, code, message);
                }
            }
            DriverEvent::Ended { code, signal } => {
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

    /// Passes a terminal's output to its driver before it is logged, so that earlier output of the command
    /// precedes it.
    pub(super) fn before_output(&mut self, key: Key, filled: usize) -> usize {
        if self.terminals.get(key).is_none_or(|terminal| terminal.driver.is_none()) {
            return filled;
        }
        // Notices of the driver are written to the same buffer.
        let mut kept = self.buffer[..filled].to_vec();
        self.drive(key, |driver, _, _| driver.output_read());
        self.read_records();
        if self.exec.polled.contains(&key) {
            self.poll_records(key);
        }
        self.drive(key, |driver, at, effects| driver.output(&mut kept, at, effects));
        self.buffer[..kept.len()].copy_from_slice(&kept);
        kept.len()
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
}
