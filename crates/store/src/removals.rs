//! Deletions that are not complete: the rows are gone, the processes and instances may still run.

use std::fmt::Display;

use model::{LeaseId, TerminalId};

use super::{
    Store, StoreError,
    row::{self, Read, to_json},
    sql::{Db, params},
};

/// The resources of deleted rows, which the caller ends and removes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeletedRows {
    /// Deleted terminals, each with its lease.
    pub terminals: Vec<(TerminalId, LeaseId)>,
    /// Leases without threads and terminals; they are marked for deletion.
    pub leases: Vec<LeaseId>,
    /// The records of the deletions, for [`Store::finish_removals`].
    pub removals: Vec<i64>,
}

impl DeletedRows {
    pub fn extend(&mut self, more: DeletedRows) {
        let DeletedRows { terminals, leases, removals } = more;
        self.terminals.extend(terminals);
        self.leases.extend(leases);
        self.removals.extend(removals);
    }
}

/// A deletion that a server did not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedRemoval {
    /// The kind of the deleted resource, e.g. `thread`.
    pub noun: String,
    pub id: String,
    pub gone: DeletedRows,
}

impl Store {
    /// Deletions that are recorded and not complete, oldest first.
    pub async fn unfinished_removals(&self) -> Result<Vec<UnfinishedRemoval>, StoreError> {
        self.read(move |db| {
            let mut statement = db.prepare_cached("SELECT * FROM removals ORDER BY number")?;
            let rows = statement.query_map((), |row| {
                Ok(UnfinishedRemoval {
                    noun: row.get("noun")?,
                    id: row.get("id")?,
                    gone: DeletedRows {
                        terminals: row::json(row, "terminals")?,
                        leases: row::json(row, "leases")?,
                        removals: vec![row.get("number")?],
                    },
                })
            })?;
            Ok(rows.collect::<Read<_>>()?)
        })
        .await
    }

    /// Forgets deletions that are complete.
    pub async fn finish_removals(&self, numbers: Vec<i64>) -> Result<(), StoreError> {
        self.write(move |db| {
            for number in &numbers {
                db.prepare_cached("DELETE FROM removals WHERE number = ?1")?.execute([number])?;
            }
            Ok(())
        })
        .await
    }
}

/// Records a deletion in the transaction that removes its rows.
pub(super) fn record(
    db: &Db,
    noun: &str,
    id: &dyn Display,
    mut gone: DeletedRows,
) -> Result<DeletedRows, StoreError> {
    let number = db
        .prepare_cached(
            "INSERT INTO removals (noun, id, terminals, leases) VALUES (?1, ?2, ?3, ?4)
             RETURNING number",
        )?
        .query_row(
            params![noun, id.to_string(), to_json(&gone.terminals), to_json(&gone.leases)],
            |row| row.get(0),
        )?;
    gone.removals.push(number);
    Ok(gone)
}
