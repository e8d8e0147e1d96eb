//! Stead: durable terminals for agents and people.
//!
//! The product is the `stead` executable; this library is its inside, shared with the integration
//! tests and the benches. Imports point inward (see `ARCHITECTURE.md`).

#[doc(hidden)]
pub mod api;
#[doc(hidden)]
pub mod background;
#[doc(hidden)]
pub mod cli;
#[doc(hidden)]
pub mod clock;
#[doc(hidden)]
pub mod config;
mod durable;
#[doc(hidden)]
pub mod event;
#[doc(hidden)]
pub mod lease;
#[doc(hidden)]
pub mod metrics;
#[doc(hidden)]
pub mod model;
#[doc(hidden)]
pub mod outbound;
#[doc(hidden)]
pub mod project;
#[doc(hidden)]
pub mod provider;
#[doc(hidden)]
pub mod server;
#[doc(hidden)]
pub mod session;
#[doc(hidden)]
pub mod store;
#[doc(hidden)]
pub mod terminal;
