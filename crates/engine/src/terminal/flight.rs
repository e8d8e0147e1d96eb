//! Commands that were requested and have not ended. Callers wait on their stage.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::{Span, debug_span};

use super::link::HostLink;
use super::options::ExecOptions;
use model::{Command, CommandId, CommandStatus, Moment, SessionId};
use store::Outputs;

/// How far a command has come.
#[derive(Debug, Clone)]
pub enum CommandStage {
    /// Queued or running.
    Open(Box<Command>),
    /// Ended; the receipt is not stored yet.
    Ended(Arc<EndedCommand>),
    /// The receipt is on stable storage.
    Recorded(Arc<EndedCommand>),
    /// The receipt could not be stored, for this reason; the recorder retries.
    Failed(String),
    /// The host of the command is gone.
    Lost,
}

#[derive(Debug)]
pub struct EndedCommand {
    pub command: Command,
    /// The whole output, if it is small.
    pub output: Option<Outputs>,
}

struct Flight {
    command: Command,
    touch: Option<(SessionId, Moment)>,
    stage: watch::Sender<CommandStage>,
    /// The boot id of the host that has the command.
    host: String,
    /// The number of the connection on which it was handed to that host.
    connection: u64,
    /// Needed to hand the command to another host; `None` once it has started.
    options: Option<Arc<ExecOptions>>,
    /// The caller left, so the command must not start.
    abandoned: bool,
    /// Whether the command waits for input.
    waiting: bool,
    /// How the command ended, if its output could not be read before the connection was closed.
    unread_end: Option<Box<Command>>,
    spans: ExecSpans,
}

impl Flight {
    fn precedence(&self) -> (bool, bool, &CommandId) {
        let runs = self.command.status == CommandStatus::Running;
        (self.waiting, runs, &self.command.command_id)
    }
}

/// The command that a terminal runs or will run next.
#[derive(Debug, Clone)]
pub struct CurrentCommand {
    pub command: Command,
    pub waits_for_input: bool,
}

/// The spans of a command in a trace. They end when they are replaced.
struct ExecSpans {
    /// Until its receipt is stored.
    whole: Span,
    /// While a host has it.
    host: Span,
}

#[derive(Default)]
pub struct Flights(Mutex<HashMap<CommandId, Flight>>);

impl Flights {
    pub fn begin(
        &self,
        command: Command,
        options: Option<Arc<ExecOptions>>,
    ) -> watch::Receiver<CommandStage> {
        let (stage, receiver) = watch::channel(CommandStage::Open(command.clone().into()));
        let touch = options.as_ref().and_then(|options| options.touch.clone());
        let id = command.command_id.clone();
        let whole =
            debug_span!(target: "trace", "exec", command = %id, terminal = %command.terminal_id);
        let flight = Flight {
            command,
            touch,
            stage,
            host: String::new(),
            connection: 0,
            options,
            abandoned: false,
            waiting: false,
            unread_end: None,
            spans: ExecSpans { whole, host: Span::none() },
        };
        self.0.lock().insert(id, flight);
        receiver
    }

    /// Notes that the caller of a command left: it must not start any more.
    pub fn abandon(&self, id: &CommandId) {
        if let Some(flight) = self.0.lock().get_mut(id) {
            flight.abandoned = true;
        }
    }

    pub fn is_abandoned(&self, id: &CommandId) -> bool {
        self.0.lock().get(id).is_some_and(|flight| flight.abandoned)
    }

    /// Notes that a command waits for input.
    pub fn begin_waiting(&self, id: &CommandId) {
        if let Some(flight) = self.0.lock().get_mut(id) {
            flight.waiting = true;
        }
    }

    /// Notes that a command no longer waits for input.
    pub fn end_waiting(&self, id: &CommandId) {
        if let Some(flight) = self.0.lock().get_mut(id) {
            flight.waiting = false;
        }
    }

    /// Returns the command that each terminal runs, or else the newest that is queued there. Those that wait for input
    /// are first, and then those that run.
    pub fn current(&self) -> Vec<CurrentCommand> {
        let flights = self.0.lock();
        let open = flights.values().filter(|flight| !flight.command.status.is_end());
        let mut open: Vec<&Flight> = open.collect();
        open.sort_by(|a, b| b.precedence().cmp(&a.precedence()));
        let mut terminals = HashSet::new();
        open.retain(|flight| terminals.insert(&flight.command.terminal_id));
        let current = open.into_iter().map(|flight| CurrentCommand {
            command: flight.command.clone(),
            waits_for_input: flight.waiting,
        });
        current.collect()
    }

    /// Notes the host to which a command is handed.
    pub fn handed_to(&self, id: &CommandId, link: &HostLink) {
        if let Some(flight) = self.0.lock().get_mut(id) {
            (flight.host, flight.connection) = (link.boot_id().to_owned(), link.number());
            let whole = &flight.spans.whole;
            flight.spans.host = debug_span!(target: "trace", parent: whole, "host", otel.kind = "client", host = link.boot_id());
        }
    }

    /// Takes back the commands that were handed to a host on an earlier connection than `before` and have not
    /// ended. Returns them with their options, oldest first.
    pub fn take_back(
        &self,
        host: &str,
        before: u64,
        of: impl Fn(&Command) -> bool,
    ) -> Vec<(Command, Option<Arc<ExecOptions>>)> {
        let mut flights = self.0.lock();
        let mut open = Vec::new();
        for flight in flights.values_mut() {
            let here = flight.host == host && flight.connection < before;
            if here && !flight.command.status.is_end() && of(&flight.command) {
                flight.host.clear();
                open.push((flight.command.clone(), flight.options.clone()));
            }
        }
        open.sort_by(|(a, _), (b, _)| a.command_id.cmp(&b.command_id));
        open
    }

    /// Notes how a command ended whose output could not be read before the connection was closed.
    pub fn note_unread_end(&self, id: &CommandId, ended: Command) {
        if let Some(flight) = self.0.lock().get_mut(id) {
            flight.unread_end = Some(ended.into());
        }
    }

    /// Returns how a command ended whose output could not be read.
    pub fn unread_end(&self, id: &CommandId) -> Option<Command> {
        self.0.lock().get(id).and_then(|flight| flight.unread_end.as_deref().cloned())
    }

    pub fn started(&self, id: &CommandId, at: Timestamp, offset: u64) {
        if let Some(flight) = self.0.lock().get_mut(id)
            && let Ok(command) = flight.command.start(at, offset)
        {
            flight.command = command.clone();
            flight.options = None;
            flight.stage.send_replace(CommandStage::Open(command.into()));
        }
    }

    pub fn stage(&self, id: &CommandId, stage: CommandStage) {
        if let Some(flight) = self.0.lock().get_mut(id) {
            if let CommandStage::Ended(ended) | CommandStage::Recorded(ended) = &stage {
                flight.command = ended.command.clone();
                flight.spans.host = Span::none();
            }
            if let CommandStage::Recorded(_) | CommandStage::Lost = &stage {
                flight.spans = ExecSpans { whole: Span::none(), host: Span::none() };
            }
            flight.stage.send_replace(stage);
        }
    }

    pub fn command(&self, id: &CommandId) -> Option<Command> {
        self.0.lock().get(id).map(|flight| flight.command.clone())
    }

    pub fn watch(&self, id: &CommandId) -> Option<watch::Receiver<CommandStage>> {
        self.0.lock().get(id).map(|flight| flight.stage.subscribe())
    }

    /// Returns a span for storing the receipt of a command.
    pub fn store_span(&self, id: &CommandId) -> Span {
        self.0.lock().get(id).map_or_else(Span::none, |flight| {
            let whole = &flight.spans.whole;
            debug_span!(target: "trace", parent: whole, "store", command = %id)
        })
    }

    /// Returns the session for which the end of a command counts as activity.
    pub fn touch(&self, id: &CommandId) -> Option<(SessionId, Moment)> {
        self.0.lock().get(id).and_then(|flight| flight.touch.clone())
    }

    /// Returns the whole output of a command that has ended, if it is small.
    pub fn output(&self, id: &CommandId) -> Option<Outputs> {
        let flights = self.0.lock();
        match &*flights.get(id)?.stage.borrow() {
            CommandStage::Ended(ended) | CommandStage::Recorded(ended) => ended.output.clone(),
            CommandStage::Open(_) | CommandStage::Failed(_) | CommandStage::Lost => None,
        }
    }

    /// Returns the lengths of a command's standard output and standard error.
    pub fn lengths(&self, id: &CommandId) -> Option<(u64, u64)> {
        self.0
            .lock()
            .get(id)
            .map(|flight| (flight.command.stdout_bytes, flight.command.stderr_bytes))
    }

    pub fn forget(&self, id: &CommandId) {
        self.0.lock().remove(id);
    }

    /// Marks commands as lost, because their host is gone. Returns those that had not ended.
    pub fn lose(&self, of: impl Fn(&Command) -> bool) -> Vec<Command> {
        let mut flights = self.0.lock();
        let lost: Vec<CommandId> = flights
            .iter()
            .filter(|(_, flight)| of(&flight.command))
            .map(|(id, _)| id.clone())
            .collect();
        let mut open = Vec::new();
        for id in lost {
            if let Some(flight) = flights.remove(&id) {
                flight.stage.send_if_modified(|stage| match stage {
                    CommandStage::Open(_) => {
                        *stage = CommandStage::Lost;
                        true
                    }
                    CommandStage::Ended(_)
                    | CommandStage::Recorded(_)
                    | CommandStage::Failed(_)
                    | CommandStage::Lost => false,
                });
                if !flight.command.status.is_end() {
                    open.push(flight.command);
                }
            }
        }
        open
    }

    /// Returns how many matching commands are queued or running.
    pub fn open(&self, of: impl Fn(&Command) -> bool) -> usize {
        let open = |flight: &&Flight| {
            matches!(flight.command.status, CommandStatus::Queued | CommandStatus::Running)
                && of(&flight.command)
        };
        self.0.lock().values().filter(open).count()
    }
}
