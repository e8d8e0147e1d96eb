//! Starts and kills the real server, and sends requests over plain sockets.
#![allow(
    clippy::unwrap_used,
    clippy::new_without_default,
    clippy::should_implement_trait,
    missing_docs
)]

pub mod agentbay;
mod engine;
mod http;
mod left;
mod person;
mod postgres;
mod program;
mod server;
mod socket;
mod strace;
pub mod terminal;
mod wait;

pub use engine::{Engine, engines};
pub use http::{Answer, Client, Event, Events, Request};
pub use left::left;
pub use person::Person;
pub use postgres::Postgres;
pub use program::{program, run};
pub use server::{Home, Server, database, flip_bit, has_sandboxes};
pub use socket::{Frame, Socket};
pub use strace::busiest;
pub use wait::{WAIT_TIMEOUT, let_pass, wait_for, wait_long};
