//! Random histories of a shell, checked against a model of a shell, a person and the clients.
//!
//! The model shares no code with the machine. It answers the machine's probes honestly, reads keys as
//! a line editor does, and knows which commands really ran.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::process::Signal;

use super::*;
use crate::effect::DriverEvent;
use crate::output::Keep;
use crate::spec::Spec;
use crate::state::State;
use wire::{IfBusy, StdinMode};

const SETTLE: Duration = Duration::from_millis(20);
const MAX_SWEEPS: u32 = 2000;

/// A step of a random history.
#[derive(Debug, Clone)]
enum Op {
    Exec {
        timeout_ms: Option<u64>,
    },
    Apply,
    Cancel(usize),
    Withdraw(usize),
    Signal,
    Replace,
    /// A person types this; with `program` a program runs if it ends a line at the prompt.
    Type {
        text: &'static str,
        program: bool,
    },
    Print,
    /// Time passes until the next deadline, or for this long.
    Tick,
    Wait(u64),
    /// The shell reads its rc file or a key.
    ShellProceeds,
    /// The command in the shell ends; its record and its dump are read in either order, or only the record
    /// is read.
    Ends {
        status: i32,
        order: Order,
    },
    /// The dump that was not read yet is read.
    Dumped,
    /// The command is interrupted: the shell is back at its prompt without a record.
    Interrupted,
    Forks,
    /// The line editor drops a key.
    KeyLost,
    /// The shell exits by itself.
    ShellExits,
    /// A shell that has exited is reaped.
    Reaped,
    /// The person's program ends.
    ProgramEnds,
    /// The files of the shell are removed.
    FilesRemoved,
    /// The next attempt to write files fails.
    DiskFull,
    /// The shell reads its key just before the next signal to stop.
    Race,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    RecordFirst,
    DumpFirst,
    RecordOnly,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Shell {
    None,
    /// It reads its rc file.
    Starting,
    Prompt,
    /// A person's program is in the foreground.
    Program,
    /// It runs a drive file.
    InRun(u64),
    Dead {
        code: Option<i32>,
        signal: Option<i32>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum Progress {
    #[default]
    Queued,
    Started,
    Ended(Outcome),
}

#[derive(Debug, Default)]
struct Submitted {
    progress: Progress,
    executed: u32,
}

struct World {
    machine: Machine,
    now: Instant,
    shell: Shell,
    stopped: bool,
    launching: bool,
    files: bool,
    /// The files were removed since the last run was started.
    files_removed: bool,
    disk_full: bool,
    race: bool,
    /// Keys in the terminal that the shell has not read.
    keys: u32,
    /// The drive file: the run, its command, and whether it empties itself.
    drive: Option<(u64, Option<usize>, bool)>,
    /// The last run that began.
    begun: Option<u64>,
    dump: bool,
    /// The run whose dump was not read.
    unread_dump: Option<u64>,
    forks: u32,
    found: u32,
    commands: Vec<Submitted>,
    scripts: BTreeMap<u64, u32>,
    typed: Option<Instant>,
    /// The prompt was seen, or a run ended, after the person last typed.
    prompt_is_fresh: bool,
    /// A run is being ended, and how many sweeps there were.
    ending: Option<u32>,
    over: bool,
}

fn id(nth: usize) -> String {
    format!("cmd_{nth}")
}

fn nth(id: &str) -> usize {
    id.strip_prefix("cmd_").and_then(|nth| nth.parse().ok()).expect("an id of the model")
}

pub(super) fn spec(nth: usize, timeout: Option<Duration>) -> Box<Spec> {
    Box::new(Spec {
        command: id(nth),
        text: b"text".to_vec(),
        timeout,
        stdin: StdinMode::Null,
        stdin_data: Vec::new(),
        env: Vec::new(),
        cwd: None,
        if_busy: IfBusy::Wait,
        keep: Keep { head: 0, tail: 0 },
    })
}

impl World {
    fn new(ends_with_shell: bool, edits_lines: bool) -> Self {
        let keys = if edits_lines { 4 } else { 1 };
        let capabilities = ShellCapabilities { edits_lines, keys, redraws: edits_lines };
        let mut machine = Machine::new(capabilities);
        if ends_with_shell {
            machine.end_with_shell();
        }
        let mut world = Self {
            machine,
            now: Instant::now(),
            shell: Shell::None,
            stopped: false,
            launching: true,
            files: true,
            files_removed: false,
            disk_full: false,
            race: false,
            keys: 0,
            drive: None,
            begun: None,
            dump: false,
            unread_dump: None,
            forks: 0,
            found: 0,
            commands: Vec::new(),
            scripts: BTreeMap::new(),
            typed: None,
            prompt_is_fresh: false,
            ending: None,
            over: false,
        };
        world.launch();
        world
    }

    fn launch(&mut self) {
        if std::mem::take(&mut self.launching) {
            self.shell = Shell::Starting;
            (self.stopped, self.keys, self.dump, self.files) = (false, 0, false, true);
            (self.typed, self.prompt_is_fresh, self.forks) = (None, false, 0);
            self.machine.launched(self.now);
        }
    }

    fn step(&mut self, event: MachineEvent<'_>) {
        for action in self.machine.step(self.now, event) {
            if let Some(answer) = self.perform(action) {
                self.step(answer);
            }
        }
    }

    fn event(&mut self, event: MachineEvent<'_>) {
        self.step(event);
        self.launch();
    }

    fn runs(&self) -> bool {
        matches!(self.shell, Shell::Prompt | Shell::Program | Shell::InRun(_)) && !self.stopped
    }

    /// Returns whether the shell sleeps in its line editor, which it does not while keys are unread.
    fn prompt_shown(&self) -> bool {
        self.shell == Shell::Prompt && !self.stopped && self.keys == 0
    }

    /// The line editor reads a key.
    fn read_key(&mut self) {
        if self.shell != Shell::Prompt || self.stopped || self.keys == 0 {
            return;
        }
        self.keys -= 1;
        let Some((number, command, once)) = self.drive else { return };
        if once {
            self.drive = None;
        }
        self.shell = Shell::InRun(number);
        self.begun = Some(number);
        if let Some(command) = command {
            self.commands[command].executed += 1;
            assert_eq!(self.commands[command].executed, 1, "a command ran twice");
            assert_eq!(self.commands[command].progress, Progress::Started, "ran after its end");
        }
    }

    /// Reports that the drive file has begun, as the driver does before each check of a run.
    fn check_begun(&mut self) {
        let begun = !self.files || self.drive_number().is_some_and(|run| self.begun == Some(run));
        if self.machine.awaits_begun() && begun {
            self.step(MachineEvent::Begun);
        }
    }

    /// The number of the run that the machine is in or ending.
    fn drive_number(&self) -> Option<u64> {
        Some(self.machine.number())
    }

    fn check_type(&mut self) {
        assert!(self.ending.is_none(), "a key is typed into a shell that is being ended");
        assert!(!matches!(self.shell, Shell::InRun(_)), "a key is typed into a running command");
        assert!(self.shell != Shell::Program, "a key is typed into a person's program");
        assert!(self.shell != Shell::Starting, "a key is typed before the prompt");
    }

    fn check_settled(&self) {
        let settled = self.typed.is_none_or(|typed| self.now >= typed + SETTLE);
        assert!(self.prompt_is_fresh, "a key is typed after a person typed, without a probe");
        assert!(settled, "a key is typed among a person's keys");
    }

    fn end(&mut self, command: &str, outcome: Outcome) {
        let command = &mut self.commands[nth(command)];
        assert!(!matches!(command.progress, Progress::Ended(_)), "a command ended twice");
        match outcome {
            Outcome::NotStarted => assert_eq!(command.executed, 0, "it ran but is not started"),
            // A command whose files are gone may have begun, so it counts as begun.
            Outcome::Finished | Outcome::Lost if !self.files_removed => {
                assert_eq!(command.executed, 1, "{outcome:?} but it never ran");
            }
            _ => {}
        }
        command.progress = Progress::Ended(outcome);
    }

    fn perform(&mut self, action: Action) -> Option<MachineEvent<'static>> {
        let answer = match action {
            Action::ProbePrompt(scope) => {
                let shown = match scope {
                    ProbeScope::FilesOnly => true,
                    ProbeScope::Unsettled => false,
                    ProbeScope::Full | ProbeScope::ReadOnly => self.prompt_shown(),
                };
                if shown && scope == ProbeScope::Full {
                    self.prompt_is_fresh = true;
                }
                Answer::Prompt(PromptProbe { files: self.files, shown, unread: false })
            }
            Action::ProbeRedraw { .. } => {
                let shown = self.prompt_shown();
                self.prompt_is_fresh |= shown;
                Answer::Redraw { wanted: true, shown }
            }
            Action::ProbeRun => {
                let left = self.prompt_shown();
                Answer::Run(RunProbe { files: self.files, left, no_records: left && self.files })
            }
            Action::ProbeDump => Answer::Dump { complete: self.dump, left: self.prompt_shown() },
            Action::WithdrawKey => {
                self.drive = None;
                let begun = self.begun == self.drive_number();
                Answer::KeyWithdrawn { begun, at_prompt: self.prompt_shown() }
            }
            Action::Start { .. } => {
                self.check_type();
                let run = self.machine.run().expect("a run is started");
                let command = match &run.job {
                    Job::Command { spec, attempt } => {
                        let nth = nth(&spec.command);
                        let earlier = self.commands[..nth].iter();
                        let waits = |other: &Submitted| other.progress == Progress::Queued;
                        assert!(!earlier.into_iter().any(waits), "the order is not kept");
                        assert!(*attempt <= 2);
                        let wanted =
                            if *attempt == 1 { Progress::Queued } else { Progress::Started };
                        assert_eq!(self.commands[nth].progress, wanted, "starts in a wrong state");
                        Some(nth)
                    }
                    Job::Capture | Job::Reread { .. } | Job::Script { .. } => None,
                };
                let reread = matches!(run.job, Job::Reread { .. });
                let number = run.number;
                if !reread {
                    self.check_settled();
                }
                if let Some(command) = command {
                    self.commands[command].progress = Progress::Started;
                }
                (self.dump, self.files_removed) = (false, !self.files);
                if std::mem::take(&mut self.disk_full) {
                    Answer::NotStarted
                } else {
                    self.drive = Some((number, command, false));
                    self.keys += 1;
                    // The model calls every third run harmless.
                    Answer::Started { harmless: command.is_some() && number.is_multiple_of(3) }
                }
            }
            Action::Retype => {
                self.check_type();
                let run = self.machine.run().expect("a run is typed again");
                let command = match &run.job {
                    Job::Command { spec, .. } => Some(nth(&spec.command)),
                    Job::Capture | Job::Reread { .. } | Job::Script { .. } => None,
                };
                if std::mem::take(&mut self.disk_full) {
                    Answer::NotRetyped
                } else {
                    self.drive = Some((run.number, command, true));
                    self.keys += 1;
                    return None;
                }
            }
            Action::Sweep(signal) => {
                let sweeps = self.ending.as_mut().expect("a sweep belongs to an ending");
                *sweeps += 1;
                assert!(self.stopped, "processes are swept while their shell runs");
                let new = self.forks > self.found;
                self.found = self.forks;
                if signal == SweepSignal::Kill {
                    (self.forks, self.found) = (0, 0);
                }
                Answer::Swept(match (self.found, new) {
                    (0, _) => SweepResult::None,
                    (_, true) => SweepResult::New,
                    (_, false) => SweepResult::Known,
                })
            }
            Action::KillSwept => {
                assert_eq!(self.forks, self.found, "processes are killed while others are unknown");
                (self.forks, self.found) = (0, 0);
                return None;
            }
            Action::Signal(signal) => match self.shell {
                Shell::InRun(_) if self.runs() => return None,
                _ => Answer::NotSignalled(signal),
            },
            Action::ReadDump => return Some(MachineEvent::DumpRead { complete: self.dump }),
            Action::StopShell => {
                if std::mem::take(&mut self.race) {
                    self.read_key();
                }
                assert!(self.ending.is_none(), "a run is ended twice");
                (self.stopped, self.ending, self.found) = (true, Some(0), 0);
                return None;
            }
            Action::KillShell => {
                let spares = matches!(self.ending, Some(0));
                let all_gone = self.forks == 0 || self.ending.is_some_and(|n| n >= MAX_SWEEPS);
                assert!(
                    self.ending.is_none() || spares || all_gone,
                    "the shell is killed before the processes of its command"
                );
                if !matches!(self.shell, Shell::None | Shell::Dead { .. }) {
                    self.shell = Shell::Dead { code: None, signal: Some(9) };
                }
                return None;
            }
            Action::Complete(completion) => {
                let gone = completion.source == StateSource::ShellGone;
                assert_eq!(gone, self.shell == Shell::None, "the state comes from the wrong shell");
                if completion.source == StateSource::Dump {
                    assert!(self.dump, "a state is read that was not dumped");
                }
                match &completion.job {
                    Job::Command { spec, .. } => self.end(&spec.command, completion.end.outcome),
                    Job::Reread { command, end, .. } => self.end(command, end.outcome),
                    Job::Script { token, .. } => *self.scripts.get_mut(token).unwrap() += 1,
                    Job::Capture => {}
                }
                Answer::Completed { prompt_changed: true }
            }
            Action::Finish { command, end, .. } => {
                self.end(&command, end.outcome);
                return None;
            }
            Action::Requeue { command } => {
                assert_eq!(self.commands[nth(&command)].executed, 0, "it ran but is queued again");
                return None;
            }
            Action::Launch { .. } => {
                assert_eq!(self.shell, Shell::None, "two shells");
                self.launching = true;
                return None;
            }
            Action::TypeRedraw => {
                self.check_type();
                self.check_settled();
                return None;
            }
            Action::ReportTyped { .. } | Action::TakeFirstDump => {
                assert!(self.dump, "a state is read that was not dumped");
                return None;
            }
            Action::Emit(DriverEvent::Applied { token, .. }) => {
                *self.scripts.get_mut(&token).unwrap() += 1;
                return None;
            }
            Action::Emit(DriverEvent::Ended { .. }) => {
                assert!(!self.over, "the terminal ends twice");
                self.over = true;
                return None;
            }
            Action::SaveModes
            | Action::RestoreModes
            | Action::RestoreEcho
            | Action::Drain
            | Action::Attend
            | Action::EndCopy
            | Action::TrimExitSequence
            | Action::ForgetAutoExit
            | Action::Reset(_)
            | Action::CloseStreams
            | Action::EndRedraw { .. }
            | Action::Show(_)
            | Action::Emit(_) => return None,
        };
        Some(MachineEvent::Answer(answer))
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Exec { timeout_ms } => {
                if self.over || self.commands.len() > 40 {
                    return;
                }
                let nth = self.commands.len();
                self.commands.push(Submitted::default());
                self.event(MachineEvent::Exec(spec(nth, timeout_ms.map(Duration::from_millis))));
            }
            Op::Apply => {
                if !self.over {
                    let token = self.scripts.len() as u64;
                    self.scripts.insert(token, 0);
                    self.event(MachineEvent::Apply { token, script: Vec::new() });
                }
            }
            Op::Cancel(which) => {
                if let Some(nth) = which.checked_rem(self.commands.len()) {
                    self.event(MachineEvent::Cancel(&id(nth)));
                }
            }
            Op::Withdraw(which) => {
                if let Some(nth) = which.checked_rem(self.commands.len()) {
                    self.event(MachineEvent::Withdraw(&id(nth)));
                }
            }
            Op::Signal => {
                self.check_begun();
                self.event(MachineEvent::Signal(Signal::TERM));
            }
            Op::Replace => self.event(MachineEvent::Replace(State::default())),
            Op::Type { text, program } => {
                self.event(MachineEvent::Typed(text.as_bytes()));
                (self.typed, self.prompt_is_fresh) = (Some(self.now), false);
                if program && text.ends_with('\r') && self.shell == Shell::Prompt && self.keys == 0
                {
                    self.shell = Shell::Program;
                }
            }
            Op::Print => self.event(MachineEvent::Printed(b"printed")),
            Op::Tick => {
                if let Some(deadline) = self.machine.deadline() {
                    self.now = self.now.max(deadline);
                }
                self.check_begun();
                self.event(MachineEvent::Tick);
            }
            Op::Wait(ms) => {
                self.now += Duration::from_millis(ms);
                self.check_begun();
                self.event(MachineEvent::Tick);
            }
            Op::ShellProceeds => {
                if self.shell == Shell::Starting {
                    (self.shell, self.dump) = (Shell::Prompt, true);
                    self.event(MachineEvent::Ready);
                } else {
                    self.read_key();
                }
            }
            Op::Ends { status, order } => {
                let Shell::InRun(number) = self.shell else { return };
                if self.stopped || !self.files {
                    return;
                }
                (self.shell, self.dump) = (Shell::Prompt, true);
                if self.typed.is_none_or(|typed| typed < self.now) && self.keys == 0 {
                    self.prompt_is_fresh |= self.machine.run().is_some_and(|run| !run.typed_during);
                }
                let record = MachineEvent::Record { number, status: Some(status) };
                match order {
                    Order::RecordFirst => self.event(record),
                    Order::DumpFirst => {
                        self.event(MachineEvent::DumpRead { complete: true });
                        self.event(record);
                    }
                    Order::RecordOnly => {
                        (self.dump, self.unread_dump) = (false, Some(number));
                        self.event(record);
                    }
                }
            }
            Op::Dumped => {
                if self.prompt_shown() && self.unread_dump == Some(self.machine.number()) {
                    self.dump = true;
                    self.event(MachineEvent::DumpRead { complete: true });
                }
            }
            Op::Interrupted => {
                if let (Shell::InRun(_), false) = (self.shell, self.stopped) {
                    self.shell = Shell::Prompt;
                }
            }
            Op::Forks => {
                if let (Shell::InRun(_), false) = (self.shell, self.stopped) {
                    self.forks += 1;
                }
            }
            Op::KeyLost => self.keys = self.keys.saturating_sub(1),
            Op::ShellExits => {
                if self.runs() || self.shell == Shell::Starting {
                    self.shell = Shell::Dead { code: Some(3), signal: None };
                }
            }
            Op::Reaped => {
                if let Shell::Dead { code, signal } = self.shell {
                    self.check_begun();
                    (self.shell, self.keys, self.drive) = (Shell::None, 0, None);
                    self.ending = None;
                    self.event(MachineEvent::Exited { code, signal });
                }
            }
            Op::ProgramEnds => {
                if self.shell == Shell::Program {
                    self.shell = Shell::Prompt;
                }
            }
            Op::FilesRemoved => (self.files, self.files_removed) = (false, true),
            Op::DiskFull => self.disk_full = true,
            Op::Race => self.race = true,
        }
    }

    /// Runs until every command and script has ended, and fails if that takes too long.
    fn settle(&mut self) {
        (self.disk_full, self.race) = (false, false);
        for round in 0.. {
            let waits = |command: &Submitted| !matches!(command.progress, Progress::Ended(_));
            let scripts_ended = self.scripts.values().all(|ends| *ends > 0);
            if scripts_ended && !self.commands.iter().any(waits) {
                break;
            }
            assert!(
                round < 20_000,
                "commands or scripts never end: {:?} {:?}",
                self.shell,
                self.machine
            );
            let op = match self.shell {
                Shell::Dead { .. } => Op::Reaped,
                Shell::Starting => Op::ShellProceeds,
                Shell::Program => Op::ProgramEnds,
                Shell::Prompt if self.keys > 0 && !self.stopped => Op::ShellProceeds,
                Shell::InRun(_) if !self.stopped && self.files => {
                    Op::Ends { status: 0, order: Order::RecordFirst }
                }
                Shell::InRun(_) if !self.stopped => Op::Interrupted,
                Shell::Prompt | Shell::InRun(_) | Shell::None => Op::Tick,
            };
            self.apply(&op);
        }
        assert!(self.scripts.values().all(|ends| *ends == 1), "a script ended not exactly once");
    }
}

fn op() -> impl Strategy<Value = Op> {
    let order =
        prop_oneof![Just(Order::RecordFirst), Just(Order::DumpFirst), Just(Order::RecordOnly)];
    let text = prop_oneof![Just("x"), Just("ls\r"), Just(" ls\r"), Just("\x03"), Just("\x1b[0n")];
    prop_oneof![
        8 => proptest::option::of(1u64..2000).prop_map(|timeout_ms| Op::Exec { timeout_ms }),
        1 => Just(Op::Apply),
        2 => any::<usize>().prop_map(Op::Cancel),
        1 => any::<usize>().prop_map(Op::Withdraw),
        1 => Just(Op::Signal),
        1 => Just(Op::Replace),
        3 => (text, any::<bool>()).prop_map(|(text, program)| Op::Type { text, program }),
        2 => Just(Op::Print),
        14 => Just(Op::Tick),
        4 => prop_oneof![0u64..30, 200u64..500, 9_000u64..40_000].prop_map(Op::Wait),
        12 => Just(Op::ShellProceeds),
        10 => (0i32..3, order).prop_map(|(status, order)| Op::Ends { status, order }),
        2 => Just(Op::Dumped),
        2 => Just(Op::Interrupted),
        2 => Just(Op::Forks),
        2 => Just(Op::KeyLost),
        1 => Just(Op::ShellExits),
        6 => Just(Op::Reaped),
        3 => Just(Op::ProgramEnds),
        1 => Just(Op::FilesRemoved),
        1 => Just(Op::DiskFull),
        1 => Just(Op::Race),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_history_keeps_the_promises_of_exec(
        ops in proptest::collection::vec(op(), 1..120),
        ends_with_shell in proptest::bool::weighted(0.1),
        edits_lines in proptest::bool::weighted(0.8),
    ) {
        let mut world = World::new(ends_with_shell, edits_lines);
        for op in &ops {
            world.apply(op);
        }
        world.settle();
    }
}
