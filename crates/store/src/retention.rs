//! Removes old versions, commands, sessions and leases.
//!
//! A version of a terminal's state is removed if it is neither among the last versions nor recent, or if
//! there are too many in total; the current version is never removed. Finished commands and sessions are
//! limited by number. Leases are removed once they are destroyed and no thread refers to them. A read finds
//! the affected terminals; the removal then handles a few per transaction, so that the writer is not
//! blocked.

use super::{
    Store, StoreError,
    row::{self, Read, int, micros},
    sql::{Db, params},
    versions,
};
use model::{CommandId, TerminalId, Timestamp};

/// How much history is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// This many versions of a terminal's state are always kept.
    pub versions: u64,
    /// Older versions are removed beyond `versions`.
    pub days: u32,
    /// The maximum number of versions of any age.
    pub max_versions: u64,
    /// The number of finished commands kept per terminal.
    pub commands: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { versions: 1000, days: 30, max_versions: 10_000, commands: 10_000 }
    }
}

/// The removed rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The number of removed versions.
    pub versions: u64,
    /// The removed commands, whose output can be deleted too.
    pub commands: Vec<(TerminalId, CommandId)>,
}

/// The number of ended sessions kept per thread.
const MAX_SESSIONS: i64 = 1000;
/// The number of terminals per transaction.
const TERMINALS_PER_STEP: usize = 16;

impl Store {
    /// Removes the history of all terminals beyond the retention.
    pub async fn prune(&self, keep: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        let mut pruned = Pruned::default();
        let full = self.read(move |db| full_terminals(db, keep)).await?;
        for ids in full.chunks(TERMINALS_PER_STEP) {
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
            db.on_postgres("SELECT fold_activity(NULL)", ())?;
            // A destroyed lease is kept while a thread refers to it.
            db.execute(
                "DELETE FROM leases WHERE word = 'destroyed'
                   AND NOT EXISTS (SELECT 1 FROM threads t WHERE t.lease_id = leases.lease_id)
                   AND NOT EXISTS (SELECT 1 FROM terminals t WHERE t.lease_id = leases.lease_id)",
                (),
            )?;
            db.execute(
                "DELETE FROM sessions WHERE is_open = 0 AND session_id IN (
                   SELECT session_id FROM (
                     SELECT session_id, row_number() OVER (
                       PARTITION BY thread_id ORDER BY created_at DESC, session_id DESC) AS place
                     FROM sessions) AS placed
                   WHERE place > ?1)",
                [MAX_SESSIONS],
            )?;
            Ok(())
        })
        .await?;
        Ok(pruned)
    }
}

/// Returns the terminals that may exceed the retention.
fn full_terminals(db: &Db, keep: Retention) -> Result<Vec<TerminalId>, StoreError> {
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
    db: &Db,
    id: &TerminalId,
    keep: Retention,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let since = micros(now) - i64::from(keep.days) * 24 * 60 * 60 * 1_000_000;
    // The oldest version to keep: the first recent one or the first of the last `versions`, whichever
    // is older, but within `max_versions`.
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
            |row| row.get::<i64>("oldest").map(|oldest| u64::try_from(oldest).unwrap_or(0)),
        )?;
    if oldest <= 1 {
        return Ok(0);
    }
    versions::remove_before(db, id, oldest)
}

fn prune_commands(
    db: &Db,
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
    let removed: Vec<CommandId> = rows.collect::<Read<_>>()?;
    Ok(removed.into_iter().map(|command| (id.clone(), command)).collect())
}
