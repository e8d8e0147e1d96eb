//! Leases.

use std::time::Duration;

use super::{
    Cursor, Page, PageRequest, Store, StoreError, checksum,
    row::{self, Read, int, micros, to_json, to_word},
    sql::{Db, OptionalExtension, SqlRow, named_params, params},
};
use model::{Desired, Lease, LeaseId, TerminalId, ThreadId};

/// A filter for leases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseFilter {
    /// Only leases of this provider.
    pub provider: Option<String>,
}

impl Store {
    /// Returns the lease with this id.
    pub async fn lease(&self, id: &LeaseId) -> Result<Option<Lease>, StoreError> {
        let id = id.clone();
        self.read(move |db| lease(db, &id)).await
    }

    /// Inserts a new lease.
    pub async fn add_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(move |db| insert(db, &lease)).await
    }

    /// Saves a changed lease. Refused if the stored lease was changed since it was read. Returns the lease
    /// with its new revision.
    pub async fn save_lease(&self, next: &Lease) -> Result<Lease, StoreError> {
        let next = next.clone();
        self.write(move |db| save(db, next.clone())).await
    }

    /// Returns the leases that are not destroyed, oldest first.
    pub async fn leases(
        &self,
        filter: LeaseFilter,
        page: PageRequest,
    ) -> Result<Page<Lease>, StoreError> {
        self.read(move |db| {
            let after = page.after.clone().unwrap_or(Cursor { at: i64::MIN, id: String::new() });
            let mut statement = db.prepare_cached(
                "SELECT * FROM leases
                 WHERE word <> 'destroyed' AND (?1 IS NULL OR provider = ?1)
                   AND (created_at, lease_id) > (?2, ?3)
                 ORDER BY created_at, lease_id LIMIT ?4",
            )?;
            let items = statement
                .query_map(
                    params![filter.provider, after.at, after.id, i64::from(page.limit) + 1],
                    from_row,
                )?
                .collect::<Read<_>>()?;
            Ok(Page::cut(items, page.limit, |lease: &Lease| Cursor {
                at: micros(lease.created_at),
                id: lease.lease_id.to_string(),
            }))
        })
        .await
    }

    /// Returns every lease that has an instance, may have one, or has one to be destroyed: the leases that
    /// a
    /// starting server has to reconcile.
    pub async fn unsettled_leases(&self) -> Result<Vec<Lease>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT * FROM leases
                 WHERE word IN ('creating', 'running', 'paused')
                    OR (desired = 'destroyed' AND word <> 'destroyed')
                    OR (desired = 'stopped' AND word = 'dead')",
            )?;
            Ok(statement.query_map((), from_row)?.collect::<Read<_>>()?)
        })
        .await
    }

    /// Returns the leases whose instance still has to be stopped or paused as requested.
    pub async fn unfinished_leases(&self) -> Result<Vec<Lease>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT * FROM leases
                 WHERE (desired = 'destroyed' AND word <> 'destroyed')
                    OR (desired = 'stopped' AND word NOT IN ('idle', 'destroyed'))
                    OR (desired = 'paused' AND word IN ('creating', 'running'))",
            )?;
            Ok(statement.query_map((), from_row)?.collect::<Read<_>>()?)
        })
        .await
    }

    /// Returns the threads that use a lease, directly or by an open terminal.
    pub async fn lease_threads(&self, id: &LeaseId) -> Result<Vec<ThreadId>, StoreError> {
        let id = id.clone();
        self.read(move |db| {
            let mut statement = db.prepare_cached(
                "SELECT thread_id FROM threads WHERE lease_id = ?1
                 UNION SELECT thread_id FROM terminals WHERE lease_id = ?1 AND is_open = 1
                 ORDER BY thread_id LIMIT 1000",
            )?;
            Ok(statement
                .query_map([id.as_str()], |row| row::parsed(row, "thread_id"))?
                .collect::<Read<_>>()?)
        })
        .await
    }

    /// Returns the total running time of all instances up to a time, by provider.
    pub async fn ran_by_provider(
        &self,
        at: model::Timestamp,
    ) -> Result<Vec<(String, Duration)>, StoreError> {
        self.read(move |db| {
            let mut statement = db.prepare_cached(
                "SELECT provider,
                        CAST(SUM(ran_us + MAX(0, ?1 - COALESCE(counted_from, ?1))) AS BIGINT) AS ran_us
                 FROM leases GROUP BY provider ORDER BY provider",
            )?;
            let rows = statement.query_map([micros(at)], |row| {
                Ok((row.get("provider")?, Duration::from_micros(row::count(row, "ran_us")?)))
            })?;
            Ok(rows.collect::<Read<_>>()?)
        })
        .await
    }

    /// Returns the open terminals of a lease.
    pub async fn lease_terminals(&self, id: &LeaseId) -> Result<Vec<TerminalId>, StoreError> {
        let id = id.clone();
        self.read(move |db| {
            let mut statement = db.prepare_cached(
                "SELECT terminal_id FROM terminals WHERE lease_id = ?1 AND is_open = 1
                 ORDER BY created_at, terminal_id",
            )?;
            Ok(statement
                .query_map([id.as_str()], |row| row::parsed(row, "terminal_id"))?
                .collect::<Read<_>>()?)
        })
        .await
    }
}

pub(super) fn lease(db: &Db, id: &LeaseId) -> Result<Option<Lease>, StoreError> {
    let mut statement = db.prepare_cached("SELECT * FROM leases WHERE lease_id = ?1")?;
    Ok(statement.query_row([id.as_str()], from_row).optional()?)
}

pub(super) fn insert(db: &Db, lease: &Lease) -> Result<(), StoreError> {
    db.prepare_cached(
        "INSERT INTO leases (lease_id, provider, desired, generation, word, state, spec,
                             ran_us, counted_from, created_at, updated_at, revision)
         VALUES (:id, :provider, :desired, :generation, :word, :state, :spec,
                 :ran, :counted, :created, :updated, :revision)",
    )?
    .execute(named_params! {
        ":id": lease.lease_id.as_str(),
        ":provider": lease.provider,
        ":desired": to_word(&lease.desired),
        ":generation": int(lease.generation),
        ":word": lease.state.word(),
        ":state": to_json(&lease.state),
        ":spec": to_json(&lease.spec),
        ":ran": int(u64::try_from(lease.ran.as_micros()).unwrap_or(u64::MAX)),
        ":counted": lease.counted_from.map(micros),
        ":created": micros(lease.created_at),
        ":updated": micros(lease.updated_at),
        ":revision": int(lease.revision),
    })?;
    Ok(())
}

pub(super) fn save(db: &Db, mut next: Lease) -> Result<Lease, StoreError> {
    let read = next.revision;
    next.revision += 1;
    let changed = db
        .prepare_cached(
            "UPDATE leases SET desired = :desired, generation = :generation, word = :word,
                    state = :state, spec = :spec, ran_us = :ran, counted_from = :counted, updated_at = :updated, revision = :revision
             WHERE lease_id = :id AND revision = :read",
        )?
        .execute(named_params! {
            ":id": next.lease_id.as_str(),
            ":desired": to_word(&next.desired),
            ":generation": int(next.generation),
            ":word": next.state.word(),
            ":state": to_json(&next.state),
            ":spec": to_json(&next.spec),
            ":ran": int(u64::try_from(next.ran.as_micros()).unwrap_or(u64::MAX)),
            ":counted": next.counted_from.map(micros),
            ":updated": micros(next.updated_at),
            ":revision": int(next.revision),
            ":read": int(read),
        })?;
    if changed == 1 {
        return Ok(next);
    }
    match lease(db, &next.lease_id)? {
        None => Err(StoreError::missing("lease", &next.lease_id)),
        Some(found) => Err(StoreError::Conflict {
            what: format!("lease {}", next.lease_id),
            expected: read,
            found: found.revision,
        }),
    }
}

/// Marks a lease for destruction if no thread or terminal uses it. Returns whether it did.
pub(super) fn release(db: &Db, id: &LeaseId, at: model::Timestamp) -> Result<bool, StoreError> {
    let used: bool = db
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM threads WHERE lease_id = ?1)
                 OR EXISTS (SELECT 1 FROM terminals WHERE lease_id = ?1 AND is_open = 1)",
        )?
        .query_row([id.as_str()], |row| row.get(0))?;
    if used {
        return Ok(false);
    }
    db.prepare_cached(
        "UPDATE leases SET desired = ?2, updated_at = ?3, revision = revision + 1
         WHERE lease_id = ?1 AND desired <> ?2",
    )?
    .execute(params![id.as_str(), to_word(&Desired::Destroyed), micros(at)])?;
    Ok(true)
}

fn from_row(row: &SqlRow<'_>) -> Read<Lease> {
    checksum::verify(row, "a lease")?;
    Ok(Lease {
        lease_id: row::parsed(row, "lease_id")?,
        provider: row.get("provider")?,
        desired: row::word(row, "desired")?,
        generation: row::count(row, "generation")?,
        state: row::json(row, "state")?,
        spec: row::json(row, "spec")?,
        ran: Duration::from_micros(row::count(row, "ran_us")?),
        counted_from: row::time_or_none(row, "counted_from")?,
        created_at: row::time(row, "created_at")?,
        updated_at: row::time(row, "updated_at")?,
        revision: row::count(row, "revision")?,
    })
}
