//! Runs work that may block off the threads of the async runtime.

use tokio::task::JoinHandle;

/// Runs `work` on a thread that may block. The work is boxed, so that the runtime's task is compiled once for each
/// type of result, and not once for each caller.
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let work: Box<dyn FnOnce() -> T + Send> = Box::new(work);
    tokio::task::spawn_blocking(work)
}
