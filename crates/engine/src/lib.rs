//! Leases, terminals, sessions, sandboxes, projects and hand-offs: every decision of the server, and no HTTP.

pub mod handoff;
pub mod lease;
pub mod project;
pub mod removal;
pub mod sandbox;
pub mod session;
pub mod terminal;
