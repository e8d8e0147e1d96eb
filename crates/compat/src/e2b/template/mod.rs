//! Templates, from which sandboxes are created. Providers and snapshots of sandboxes are templates, too.

pub(super) mod build;
pub(super) mod list;
pub(super) mod log;
mod lookup;
pub(super) mod tags;
pub(super) mod upload;

pub(super) use lookup::{BASE, DEFAULT_TAG_SUFFIX};
