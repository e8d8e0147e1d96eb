//! The store on PostgreSQL: a bounded pool of connections, and transactions that are repeated when they conflict.
//!
//! Reads and writes run in transactions of their own, in parallel, at REPEATABLE READ. A transaction that conflicts with
//! another is repeated as a whole. A commit whose answer is lost is looked up: each connection has a row with the number
//! of its last commit, which is written in the message that commits. Decision 45 says why.

mod pool;
mod schema;
mod transaction;

pub(crate) use pool::{ConnectionPool, TransactionKind};
