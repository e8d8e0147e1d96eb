//! Names and versions that clients see.

/// The name of this API in the rows of sandboxes and templates.
pub(super) const ORIGIN: &str = "daytona";
/// The id of the only organization.
pub(super) const ORGANIZATION: &str = "00000000-0000-0000-0000-000000000001";
/// The version of the toolbox whose behaviour we reproduce.
pub(super) const TOOLBOX: &str = "0.190.0";
