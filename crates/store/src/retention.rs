//! Removes old versions, commands, sessions and leases.
//!
//! A version of a terminal's state goes when it is neither among the last so many nor younger than
//! so long, or when there are far too many; the present one never goes. Commands that have ended go by
//! number alone, as do sessions; leases go when they are over and no thread knows them. What is to go is found by reading, and then let go a few terminals at a time, so that
//! the writer is never held up.

use rusqlite::{Connection, params};

use super::{
    Store, StoreError,
    row::{self, Read, int, micros},
    versions,
};
use model::{CommandId, TerminalId, Timestamp};

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// This many versions of a terminal's state are kept in any case.
    pub versions: u64,
    /// And all that are younger than this,
    pub days: u32,
    /// but never more than this many.
    pub max_versions: u64,
    /// This many commands of a terminal are kept.
    pub commands: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { versions: 1000, days: 30, max_versions: 10_000, commands: 10_000 }
    }
}

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// How many versions.
    pub versions: u64,
    /// Which commands; their output can go too.
    pub commands: Vec<(TerminalId, CommandId)>,
}

/// How many sessions of a thread are remembered.
const SESSIONS: i64 = 1000;

/// How many terminals one transaction deals with.
const STEP: usize = 16;

impl Store {
    /// Removes what exceeds the retention, over all terminals.
    pub async fn prune(&self, keep: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        let mut pruned = Pruned::default();
        let full = self.read(move |db| full_terminals(db, keep)).await?;
        for ids in full.chunks(STEP) {
            let ids = ids.to_vec();
            let step = self
                .write(move |db| {
                    let mut step = Pruned::default();
                    for id in &ids {
                        step.versions += prune_versions(db, id, keep, now)?;
                        step.commands.extend(prune_commands(db, id, keep)?);
                    }
                    Ok(step)
                })
                .await?;
            pruned.versions += step.versions;
            pruned.commands.extend(step.commands);
        }
        self.write(|db| {
            // A lease that is over is kept as long as a thread may need it again.
            db.execute(
                "DELETE FROM leases WHERE word = 'destroyed'
                   AND NOT EXISTS (SELECT 1 FROM threads t WHERE t.lease_id = leases.lease_id)
                   AND NOT EXISTS (SELECT 1 FROM terminals t WHERE t.lease_id = leases.lease_id)",
                [],
            )?;
            db.execute(
                "DELETE FROM sessions WHERE is_open = 0 AND session_id IN (
                   SELECT session_id FROM (
                     SELECT session_id, row_number() OVER (
                       PARTITION BY thread_id ORDER BY created_at DESC, session_id DESC) AS place
                     FROM sessions)
                   WHERE place > ?1)",
                [SESSIONS],
            )?;
            Ok(())
        })
        .await?;
        Ok(pruned)
    }
}

/// The terminals that have more of anything than is kept in any case.
fn full_terminals(db: &Connection, keep: Retention) -> Result<Vec<TerminalId>, StoreError> {
    let mut statement = db.prepare_cached(
        "SELECT terminal_id FROM terminals WHERE version > ?1
         UNION
         SELECT terminal_id FROM commands GROUP BY terminal_id HAVING count(*) > ?2",
    )?;
    let rows = statement.query_map(params![int(keep.versions), int(keep.commands)], |row| {
        row::parsed(row, "terminal_id")
    })?;
    Ok(rows.collect::<Read<_>>()?)
}

fn prune_versions(
    db: &Connection,
    id: &TerminalId,
    keep: Retention,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let since = micros(now) - i64::from(keep.days) * 24 * 60 * 60 * 1_000_000;
    // The oldest to stay: the first that is young enough or the first of the last so many, whichever
    // is the older, unless that makes too many.
    let oldest: u64 = db
        .prepare_cached(
            "SELECT max(t.version - ?4 + 1, min(
               coalesce((SELECT min(version) FROM terminal_versions
                         WHERE terminal_id = ?1 AND at >= ?2), t.version),
               t.version - ?3 + 1)) AS oldest
             FROM terminals t WHERE t.terminal_id = ?1",
        )?
        .query_row(
            params![
                id.as_str(),
                since,
                int(keep.versions.max(1)),
                int(keep.max_versions.max(keep.versions).max(1)),
            ],
            |row| row.get::<_, i64>("oldest").map(|oldest| u64::try_from(oldest).unwrap_or(0)),
        )?;
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
