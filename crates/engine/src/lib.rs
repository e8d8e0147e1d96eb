//! Leases, terminals, sessions and projects: every decision of the server, and no HTTP.

pub mod lease;
pub mod project;
pub mod removal;
pub mod session;
pub mod terminal;
