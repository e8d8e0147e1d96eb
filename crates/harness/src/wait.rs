//! Waits for conditions.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

/// How long a test waits for a condition.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Polls until the condition holds; panics with the last observation after `WAIT_TIMEOUT`.
pub fn wait_for<T, S: Debug>(what: &str, poll: impl FnMut() -> Result<T, S>) -> T {
    wait_within(WAIT_TIMEOUT, what, poll)
}

/// Like [`wait_for`] with a longer timeout, for container engines and many processes.
pub fn wait_long<T, S: Debug>(what: &str, poll: impl FnMut() -> Result<T, S>) -> T {
    wait_within(5 * WAIT_TIMEOUT, what, poll)
}

fn wait_within<T, S: Debug>(
    timeout: Duration,
    what: &str,
    mut poll: impl FnMut() -> Result<T, S>,
) -> T {
    let deadline = Instant::now() + timeout;
    loop {
        match poll() {
            Ok(found) => return found,
            Err(seen) => assert!(Instant::now() < deadline, "waited for {what}, saw {seen:?}"),
        }
        pause();
    }
}

/// The only place where a test may sleep between two polls.
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

/// Sleeps to spread actions over time, such as kills over the duration of a command. Never use it to wait for
/// a condition.
pub fn let_pass(moment: Duration) {
    std::thread::sleep(moment);
}
