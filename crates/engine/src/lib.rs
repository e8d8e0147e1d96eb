//! Leases, terminals, sessions, sandboxes and projects: every decision of the server, and no HTTP.

pub mod lease;
pub mod project;
pub mod removal;
pub mod sandbox;
pub mod session;
pub mod terminal;
