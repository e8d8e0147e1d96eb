//! Names and versions that clients see.

/// The name of this API in the rows of sandboxes and templates.
pub(super) const ORIGIN: &str = "e2b";
/// The version of the daemon whose behaviour we reproduce.
pub(super) const ENVD: &str = "0.6.13";
