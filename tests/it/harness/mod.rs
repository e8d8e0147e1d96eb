//! Starts and kills the real server, and talks to it over plain sockets.

mod engine;
mod http;
mod left;
mod person;
mod server;
mod socket;
mod strace;

pub use engine::{Engine, engines};
pub use http::{Answer, Client, Event, Events, Request};
pub use left::left;
pub use person::Person;
pub use server::{Home, Server, has_sandboxes, run};
pub use socket::{Frame, Socket};
pub use strace::busiest;

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

/// How long a test waits for what it expects.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Looks again and again until `look` says yes, or fails with the last thing it saw.
pub fn wait_for<T, S: Debug>(what: &str, look: impl FnMut() -> Result<T, S>) -> T {
    wait_within(PATIENCE, what, look)
}

/// The same for what takes an engine, or many processes, their time.
pub fn wait_long<T, S: Debug>(what: &str, look: impl FnMut() -> Result<T, S>) -> T {
    wait_within(5 * PATIENCE, what, look)
}

fn wait_within<T, S: Debug>(
    patience: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<T, S>,
) -> T {
    let deadline = Instant::now() + patience;
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => assert!(Instant::now() < deadline, "waited for {what}, saw {seen:?}"),
        }
        pause();
    }
}

/// The one place where a test may rest between two looks.
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

/// Lets a moment pass so that what comes next falls into another part of what goes on. Never to wait
/// for something to have happened.
pub fn let_pass(moment: Duration) {
    std::thread::sleep(moment);
}
