//! Durable rows of all resources. All SQL is in this crate.
//!
//! A write returns `Ok` once the change is on stable storage. A change to a row that can be modified
//! concurrently carries the version (or revision) that was read. If the row has another version, the change
//! is refused, never merged. Readers never wait for the writer.

mod bundle;
mod check;
mod checkpoint;
mod checksum;
mod commands;
mod connect;
mod database;
mod entries;
mod error;
mod handoffs;
mod idempotency;
mod leases;
mod ledger;
mod lock;
mod page;
mod postgres;
mod private;
mod projects;
mod rehearsal;
mod relocate;
mod removals;
mod retention;
mod row;
mod sandbox_records;
mod sandboxes;
mod schema;
mod sessions;
mod shares;
mod sql;
mod sqlite;
mod templates;
mod terminals;
mod threads;
mod tokens;
mod versions;
mod writer;

#[cfg(test)]
mod contract;

pub use bundle::{Bundle, Ids};
pub use check::{FileCheck, check_file};
pub use checksum::DamagedTable;
pub use commands::{CommandQuery, FinishCommand, Finished, Outputs, RecentCommand, RecentCommands};
pub use database::{Store, WriterTotals};
pub use entries::{EntryChange, EntryIndex, EntryRow};
pub use error::{OpenError, StoreError};
pub use handoffs::{HandoffAdded, HandoffFilter, HandoffLimits};
pub use idempotency::{Claim, StoredResponse, scoped_key};
pub use leases::LeaseFilter;
pub use ledger::LedgerEntry;
pub use lock::{HomeLock, LockError};
pub use page::{BadCursor, Cursor, Page, PageRequest};
pub use projects::{ProjectFilter, ProjectUsage};
pub use rehearsal::{Rehearsal, inspect_postgres, rehearse};
pub use removals::{DeletedRows, UnfinishedRemoval};
pub use retention::{Pruned, Retention};
pub use sandbox_records::{
    DueSandboxes, SandboxFilter, SandboxOrder, SandboxPurpose, SandboxRecord,
};
pub use sessions::SessionFilter;
pub use shares::Share;
pub use threads::{Chain, FirstUse, ThreadChoices, ThreadFilter};
pub use tokens::Token;
pub use versions::{Section, StateChange};
pub use writer::StoreHealth;
