//! The steps of each client, as a function of the seed only.
//!
//! Step `n` of client `c` has its own generator, so neither answers nor timing change the steps that follow.

use std::time::Duration;

use crate::{http::Vanish, rng::Rng};

/// Threads whose variables all clients read and write.
pub const REGISTER_THREADS: usize = 3;
/// Variables of each of these threads.
pub const VARIABLES: [&str; 2] = ["CHAOS_A", "CHAOS_B"];
/// Files that all clients read and write.
pub const FILES: [&str; 6] = [
    "/workspace/shared-0",
    "/workspace/shared-1",
    "/memories/hot/shared-0",
    "/memories/hot/shared-1",
    "/memories/persistent/shared-0",
    "/memories/persistent/shared-1",
];

/// One operation of one client.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedStep {
    /// Unique in the run; contained in written values.
    pub id: u64,
    pub action: PlannedAction,
    /// Whether and when the client disconnects.
    pub vanish: Option<Vanish>,
    /// Whether the request has an `Idempotency-Key` and is repeated if its outcome is unknown.
    pub keyed: bool,
    /// A random number for choices that depend on earlier answers, such as one of the known versions.
    pub choice: u64,
    /// The delay after the step.
    pub pause: Duration,
}

/// How a variable is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteBy {
    /// An exec that waits for its end.
    Exec,
    /// An exec that yields; the receipt is polled.
    YieldingExec,
    /// `PATCH …/env`.
    Patch,
    /// An exec that writes and then exceeds its timeout: the write must be rolled back.
    TimedOutExec,
}

/// How a variable is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadBy {
    /// The live shell prints it.
    Exec,
    /// The recorded state has it.
    State,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlannedAction {
    /// Writes a variable of a shared thread.
    WriteVariable {
        /// Which thread.
        thread: usize,
        /// Which variable.
        variable: usize,
        /// How.
        by: WriteBy,
    },
    /// Reads a variable of a shared thread.
    ReadVariable {
        /// Which thread.
        thread: usize,
        /// Which variable.
        variable: usize,
        /// How.
        by: ReadBy,
    },
    /// Replaces a shared file.
    WriteFile {
        /// Which file.
        file: usize,
        /// The approximate length.
        length: usize,
    },
    /// Reads a shared file.
    ReadFile {
        /// Which file.
        file: usize,
    },
    /// Sets the variable of the client's own thread, which adds a version.
    AddVersion,
    /// Rolls the client's own terminal back to a version it knows.
    Rollback,
    /// Reads a version again: it must not have changed.
    ReadVersion,
    /// Forks the client's own terminal at a version, uses the fork and deletes it.
    Fork,
    /// Runs a command with much output and reads it by offset while it runs.
    Stream {
        /// How many lines it prints.
        lines: u64,
    },
    /// Feeds a running command by `write_id`s, some of them sent twice.
    Feed {
        /// How many lines.
        lines: u64,
    },
    /// Types a line into a program on a PTY, with a `write_id`.
    Type,
    /// Adds a message to the client's own thread.
    Message,
    /// Creates a thread, runs a background process, and deletes the thread.
    TemporaryThread {
        /// Whether a second thread shares its lease.
        shared: bool,
    },
    /// Reads an old receipt again: it must not have changed.
    ReadReceipt,
    /// Creates a share link of the client's own terminal, opens it, and revokes some of them.
    Share,
    /// Pauses the instance of the client's own thread, and resumes it by request or by the next command.
    Pause,
}

/// Returns a step of a client.
#[must_use]
pub fn step(seed: u64, client: usize, index: u64, vanishing: bool) -> PlannedStep {
    let mut rng = Rng::new(seed, &[1, client as u64, index]);
    let action = action(&mut rng);
    let vanish = (vanishing && rng.chance(12)).then(|| {
        if rng.chance(50) {
            Vanish::InRequest(rng.below(1000) as u16)
        } else {
            Vanish::InAnswer(Duration::from_micros(rng.below(60_000)))
        }
    });
    let keyed = rng.chance(50);
    let choice = rng.bits();
    let pause = Duration::from_millis(if rng.chance(20) { rng.below(200) } else { 0 });
    PlannedStep { id: id(client, index), action, vanish, keyed, choice, pause }
}

/// Returns the id of a step, which is never 0.
#[must_use]
pub fn id(client: usize, index: u64) -> u64 {
    ((client as u64 + 1) << 32) | index
}

/// Returns an id as it is written in commands, files and reports.
#[must_use]
pub fn name(id: u64) -> String {
    if id == 0 { "nothing".to_owned() } else { format!("c{}n{}", (id >> 32) - 1, id & 0xffff_ffff) }
}

/// Returns the name of a file that commands write to. It is of this run, because the sandboxes of a vendor that is not
/// isolated share a directory with those of other runs.
#[must_use]
pub fn file(kind: &str, of: impl std::fmt::Display) -> String {
    format!("{kind}-{}-{of}", std::process::id())
}

/// Parses a name that [`name`] returned.
#[must_use]
pub fn parse_name(name: &str) -> Option<u64> {
    let (client, index) = name.strip_prefix('c')?.split_once('n')?;
    Some(id(client.parse().ok()?, index.parse().ok()?))
}

fn action(rng: &mut Rng) -> PlannedAction {
    let thread = rng.below(REGISTER_THREADS as u64) as usize;
    let variable = rng.below(VARIABLES.len() as u64) as usize;
    let file = rng.below(FILES.len() as u64) as usize;
    match rng.below(100) {
        0..24 => {
            let by = match rng.below(100) {
                0..55 => WriteBy::Exec,
                55..75 => WriteBy::YieldingExec,
                75..92 => WriteBy::Patch,
                _ => WriteBy::TimedOutExec,
            };
            PlannedAction::WriteVariable { thread, variable, by }
        }
        24..46 => {
            let by = if rng.chance(60) { ReadBy::Exec } else { ReadBy::State };
            PlannedAction::ReadVariable { thread, variable, by }
        }
        46..55 => {
            let length = if rng.chance(70) { rng.below(200) } else { rng.below(60_000) } as usize;
            PlannedAction::WriteFile { file, length }
        }
        55..64 => PlannedAction::ReadFile { file },
        64..70 => PlannedAction::AddVersion,
        70..73 => PlannedAction::Rollback,
        73..76 => PlannedAction::ReadVersion,
        76..78 => PlannedAction::Fork,
        78..82 => PlannedAction::Stream { lines: rng.between(1, 3000) },
        82..85 => PlannedAction::Feed { lines: rng.between(1, 6) },
        85..89 => PlannedAction::Type,
        89..93 => PlannedAction::Message,
        93..96 => PlannedAction::TemporaryThread { shared: rng.chance(30) },
        96..98 => PlannedAction::ReadReceipt,
        98 => PlannedAction::Share,
        _ => PlannedAction::Pause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_steps_of_each_client() {
        for index in 0..200 {
            assert_eq!(step(7, 3, index, true), step(7, 3, index, true));
        }
        let differ = (0..200)
            .filter(|index| step(7, 3, *index, true).action != step(8, 3, *index, true).action);
        assert!(differ.count() > 100);
    }

    #[test]
    fn a_name_is_parsed_to_its_id() {
        assert_eq!(parse_name(&name(id(3, 99))), Some(id(3, 99)));
        assert_eq!(parse_name("nothing"), None);
    }
}
