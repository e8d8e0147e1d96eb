//! Commands that were requested and have not ended. Callers wait on their stage.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::options::ExecOptions;
use model::{Command, CommandId, CommandStatus, Moment, SessionId, TerminalId};
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
    /// Needed to hand the command to another host; `None` once it has started.
    options: Option<Arc<ExecOptions>>,
    /// The caller left, so the command must not start.
    abandoned: bool,
    /// Whether the command waits for input.
    waiting: bool,
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
        let host = String::new();
        let flight =
            Flight { command, touch, stage, host, options, abandoned: false, waiting: false };
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

    /// Returns the command that runs in a terminal, or else the newest that is queued there, and whether it waits for
    /// input.
    pub fn current(&self, terminal: &TerminalId) -> Option<(Command, bool)> {
        let flights = self.0.lock();
        let open = flights.values().filter(|flight| {
            flight.command.terminal_id == *terminal && !flight.command.status.is_end()
        });
        let current = open.max_by_key(|flight| {
            (flight.command.status == CommandStatus::Running, &flight.command.command_id)
        });
        current.map(|flight| (flight.command.clone(), flight.waiting))
    }

    /// Notes the host to which a command is handed.
    pub fn handed_to(&self, id: &CommandId, host: &str) {
        if let Some(flight) = self.0.lock().get_mut(id) {
            flight.host = host.to_owned();
        }
    }

    /// Returns the commands on this host that have not ended, oldest first, with their options.
    pub fn on(&self, host: &str) -> Vec<(Command, Option<Arc<ExecOptions>>)> {
        let flights = self.0.lock();
        let open = flights.values().filter(|it| it.host == host && !it.command.status.is_end());
        let mut open: Vec<_> = open.map(|it| (it.command.clone(), it.options.clone())).collect();
        open.sort_by(|(a, _), (b, _)| a.command_id.cmp(&b.command_id));
        open
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

    /// Returns the session for which the end of a command counts as activity.
    pub fn touch(&self, id: &CommandId) -> Option<(SessionId, Moment)> {
        self.0.lock().get(id).and_then(|flight| flight.touch.clone())
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
