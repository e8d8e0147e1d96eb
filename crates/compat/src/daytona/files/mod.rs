//! The files of a sandbox, as the toolbox serves them.

mod query;
pub(super) mod search;
mod tool;
pub(super) mod transfer;
pub(super) mod tree;
