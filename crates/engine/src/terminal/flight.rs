//! Commands that have been asked for and are not over yet, as levels that can be waited for.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::options::ExecOptions;
use model::{Command, CommandId, CommandStatus, Moment, SessionId};
use store::Outputs;

/// How far a command is, seen from here.
#[derive(Debug, Clone)]
pub enum Stage {
    /// It waits or runs.
    Open(Box<Command>),
    /// It has ended; its receipt is not on stable storage yet.
    Ended(Arc<Ended>),
    /// Its receipt is on stable storage.
    Recorded(Arc<Ended>),
    /// Its receipt could not be written; it is tried again.
    Failed(String),
    /// The host that ran it is gone.
    Lost,
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ended {
    /// It.
    pub command: Command,
    /// All it wrote, if that is little.
    pub output: Option<Outputs>,
}

struct Flight {
    command: Command,
    touch: Option<(SessionId, Moment)>,
    stage: watch::Sender<Stage>,
    /// The host it was handed to.
    host: String,
    /// What it takes to hand it to another, until it begins.
    options: Option<Arc<ExecOptions>>,
    /// Its caller has left, and it is not to begin.
    abandoned: bool,
}

/// All commands in flight.
#[derive(Default)]
pub struct Flights(Mutex<HashMap<CommandId, Flight>>);

impl Flights {
    /// A command was asked for.
    pub fn begin(
        &self,
        command: Command,
        options: Option<Arc<ExecOptions>>,
    ) -> watch::Receiver<Stage> {
        let (stage, receiver) = watch::channel(Stage::Open(command.clone().into()));
        let touch = options.as_ref().and_then(|options| options.touch.clone());
        let id = command.command_id.clone();
        let host = String::new();
        let flight = Flight { command, touch, stage, host, options, abandoned: false };
        self.0.lock().insert(id, flight);
        receiver
    }

    /// Its caller has left: if it has not begun, it is not to.
    pub fn abandon(&self, id: &CommandId) {
        if let Some(flight) = self.0.lock().get_mut(id) {
            flight.abandoned = true;
        }
    }

    /// Whether its caller has left and it is not to begin.
    pub fn is_abandoned(&self, id: &CommandId) -> bool {
        self.0.lock().get(id).is_some_and(|flight| flight.abandoned)
    }

    /// It is being handed to this host.
    pub fn handed_to(&self, id: &CommandId, host: &str) {
        if let Some(flight) = self.0.lock().get_mut(id) {
            flight.host = host.to_owned();
        }
    }

    /// The commands that were handed to this host and have not ended, oldest first, with what it
    /// takes to hand them to another.
    pub fn on(&self, host: &str) -> Vec<(Command, Option<Arc<ExecOptions>>)> {
        let flights = self.0.lock();
        let open = flights.values().filter(|it| it.host == host && !it.command.status.is_end());
        let mut open: Vec<_> = open.map(|it| (it.command.clone(), it.options.clone())).collect();
        open.sort_by(|(a, _), (b, _)| a.command_id.cmp(&b.command_id));
        open
    }

    /// It began to run.
    pub fn started(&self, id: &CommandId, at: Timestamp, offset: u64) {
        if let Some(flight) = self.0.lock().get_mut(id)
            && let Ok(command) = flight.command.start(at, offset)
        {
            flight.command = command.clone();
            flight.options = None;
            flight.stage.send_replace(Stage::Open(command.into()));
        }
    }

    /// It got this far.
    pub fn stage(&self, id: &CommandId, stage: Stage) {
        if let Some(flight) = self.0.lock().get_mut(id) {
            if let Stage::Ended(ended) | Stage::Recorded(ended) = &stage {
                flight.command = ended.command.clone();
            }
            flight.stage.send_replace(stage);
        }
    }

    /// The command as it is known here.
    pub fn command(&self, id: &CommandId) -> Option<Command> {
        self.0.lock().get(id).map(|flight| flight.command.clone())
    }

    /// Its stage, to be waited on.
    pub fn watch(&self, id: &CommandId) -> Option<watch::Receiver<Stage>> {
        self.0.lock().get(id).map(|flight| flight.stage.subscribe())
    }

    /// What its end counts as activity of.
    pub fn touch(&self, id: &CommandId) -> Option<(SessionId, Moment)> {
        self.0.lock().get(id).and_then(|flight| flight.touch.clone())
    }

    /// How much it had written when it ended.
    pub fn lengths(&self, id: &CommandId) -> Option<(u64, u64)> {
        self.0
            .lock()
            .get(id)
            .map(|flight| (flight.command.stdout_bytes, flight.command.stderr_bytes))
    }

    /// It is over and done with.
    pub fn forget(&self, id: &CommandId) {
        self.0.lock().remove(id);
    }

    /// The host of these terminals is gone: whatever ran there has no end.
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
                    Stage::Open(_) => {
                        *stage = Stage::Lost;
                        true
                    }
                    Stage::Ended(_) | Stage::Recorded(_) | Stage::Failed(_) | Stage::Lost => false,
                });
                if !flight.command.status.is_end() {
                    open.push(flight.command);
                }
            }
        }
        open
    }

    /// How many commands of a terminal wait or run.
    pub fn open(&self, of: impl Fn(&Command) -> bool) -> usize {
        let open = |flight: &&Flight| {
            matches!(flight.command.status, CommandStatus::Queued | CommandStatus::Running)
                && of(&flight.command)
        };
        self.0.lock().values().filter(open).count()
    }
}
