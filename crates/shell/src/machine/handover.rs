//! A machine that continues where the machine of another executable stopped.

use std::time::Instant;

use super::idle::{Idle, Poll, PromptState, Redraw};
use super::job::Job;
use super::phase::MachinePhase;
use super::queue::QueuedJob;
use super::run::{Run, Stage};
use super::{Machine, ShellCapabilities};
use crate::spec::Spec;

/// The part of a machine that is handed over to the next executable.
#[derive(Debug)]
pub struct Handover {
    pub number: u64,
    pub key: usize,
    pub ends_with_shell: bool,
    pub queue: Vec<Spec>,
    pub running: Option<HandedRun>,
}

/// A running command that is handed over.
#[derive(Debug)]
pub struct HandedRun {
    pub number: u64,
    pub spec: Box<Spec>,
    pub started: Instant,
    pub begun: bool,
    pub harmless: bool,
    pub status: Option<i32>,
}

impl Machine {
    /// Continues where the machine of another executable stopped.
    pub fn resume(capabilities: ShellCapabilities, handover: Handover, now: Instant) -> Self {
        let mut machine = Self::new(capabilities);
        machine.number = handover.number;
        machine.key = handover.key % capabilities.keys;
        machine.ends_with_shell = handover.ends_with_shell;
        machine.queue = handover
            .queue
            .into_iter()
            .map(|spec| {
                let until = spec.timeout.map(|timeout| now + timeout);
                QueuedJob::Command { spec: Box::new(spec), until, attempts: 0 }
            })
            .collect();
        machine.phase = match handover.running {
            Some(handed) => {
                let job = Job::Command { spec: handed.spec, attempt: 1 };
                let mut run = Run::new(handed.number, job, handed.started, Redraw::default());
                run.harmless = handed.harmless;
                if handed.begun {
                    run.begin();
                }
                if let Some(status) = handed.status {
                    run.stage = Stage::Ended { at: now, status };
                }
                MachinePhase::Running(Box::new(run))
            }
            None => MachinePhase::Idle(Idle {
                prompt: PromptState::Unknown,
                poll: Poll::soon(now),
                redraw: Redraw::default(),
            }),
        };
        machine
    }
}
