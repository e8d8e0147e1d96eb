//! What is not kept for ever.
//!
//! A version of a terminal's state goes when it is neither among the last so many nor younger than
//! so long; the present one never goes. Commands that have ended go by number alone. Done a few
//! terminals at a time, so that the writer is never held up.

use rusqlite::{Connection, params};

use super::{
    Store, StoreError,
    row::{self, Read, int, micros},
    versions,
};
use crate::model::{CommandId, TerminalId, Timestamp};

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// This many versions of a terminal's state are kept in any case.
    pub versions: u64,
    /// And all that are younger than this.
    pub days: u32,
    /// This many commands of a terminal are kept.
    pub commands: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { versions: 1000, days: 30, commands: 10_000 }
    }
}

/// What went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// How many versions.
    pub versions: u64,
    /// Which commands; their output can go too.
    pub commands: Vec<(TerminalId, CommandId)>,
}

/// How many terminals, and how many commands, one transaction deals with.
const STEP: u32 = 64;

impl Store {
    /// Lets go of what is no longer kept, over all terminals.
    pub async fn prune(&self, keep: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        let mut pruned = Pruned::default();
        let mut after = String::new();
        loop {
            let from = after.clone();
            let (ids, step) = self
                .write(move |db| {
                    let ids = terminals_after(db, &from)?;
                    let mut step = Pruned::default();
                    for id in &ids {
                        step.versions += prune_versions(db, id, keep, now)?;
                        step.commands.extend(prune_commands(db, id, keep)?);
                    }
                    Ok((ids, step))
                })
                .await?;
            pruned.versions += step.versions;
            pruned.commands.extend(step.commands);
            match ids.last() {
                Some(last) => after = last.to_string(),
                None => return Ok(pruned),
            }
        }
    }
}

fn terminals_after(db: &Connection, after: &str) -> Result<Vec<TerminalId>, StoreError> {
    let mut statement = db.prepare_cached(
        "SELECT terminal_id FROM terminals WHERE terminal_id > ?1 ORDER BY terminal_id LIMIT ?2",
    )?;
    let rows = statement.query_map(params![after, STEP], |row| row::parsed(row, "terminal_id"))?;
    Ok(rows.collect::<Read<_>>()?)
}

fn prune_versions(
    db: &Connection,
    id: &TerminalId,
    keep: Retention,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let since = micros(now) - i64::from(keep.days) * 24 * 60 * 60 * 1_000_000;
    // The oldest to stay: the first that is young enough, or the first of the last so many,
    // whichever is the older; the present one if neither is there.
    let oldest: u64 = db
        .prepare_cached(
            "SELECT min(
               coalesce((SELECT min(version) FROM terminal_versions
                         WHERE terminal_id = ?1 AND at >= ?2), t.version),
               max(t.version - ?3 + 1, 1)) AS oldest
             FROM terminals t WHERE t.terminal_id = ?1",
        )?
        .query_row(params![id.as_str(), since, int(keep.versions.max(1))], |row| {
            row.get::<_, i64>("oldest").map(|oldest| u64::try_from(oldest).unwrap_or(0))
        })?;
    if oldest <= 1 {
        return Ok(0);
    }
    versions::forget_before(db, id, oldest)
}

fn prune_commands(
    db: &Connection,
    id: &TerminalId,
    keep: Retention,
) -> Result<Vec<(TerminalId, CommandId)>, StoreError> {
    let mut statement = db.prepare_cached(
        "DELETE FROM commands WHERE command_id IN (
           SELECT command_id FROM commands
           WHERE terminal_id = ?1 AND status NOT IN ('queued', 'running')
           ORDER BY created_at DESC, command_id DESC LIMIT 10000 OFFSET ?2)
         RETURNING command_id",
    )?;
    let rows = statement.query_map(params![id.as_str(), int(keep.commands)], |row| {
        row::parsed(row, "command_id")
    })?;
    let gone: Vec<CommandId> = rows.collect::<Read<_>>()?;
    Ok(gone.into_iter().map(|command| (id.clone(), command)).collect())
}
