//! Leases, terminals, sessions, sandboxes and hand-offs: every decision of the server, and no HTTP.

pub mod departures;
pub mod handoff;
pub mod lease;
pub mod removal;
pub mod sandbox;
pub mod session;
pub mod terminal;
