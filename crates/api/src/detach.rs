//! Runs requests in tasks of the server, so that a disconnecting client does not interrupt them.
//!
//! A handler that runs in the connection's own future is dropped at its next `.await` when the client
//! disconnects: rows may be written and the work they describe never started. Every request that changes
//! something therefore runs here, except `exec` and `/mcp`: a queued command is withdrawn when its client
//! disconnects, so those handlers must notice.

use std::sync::Arc;

use axum::{extract::Request, http::Method, middleware::Next, response::Response};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::error::{Code, Problem};

/// Bounds the requests that continue after their clients disconnect.
#[derive(Debug, Clone)]
pub(super) struct Detached(Arc<Semaphore>);

impl Detached {
    /// Allows `max` requests at a time; one more is refused before it has any effect.
    pub(super) fn new(max: usize) -> Detached {
        Detached(Arc::new(Semaphore::new(max)))
    }

    /// Runs a request to its end in a task of `tasks`, and returns its response if the client still waits.
    pub(super) async fn run(
        &self,
        tasks: &TaskTracker,
        request: Request,
        next: Next,
    ) -> Result<Response, Problem> {
        let Ok(permit) = self.0.clone().try_acquire_owned() else {
            return Err(Problem::new(Code::Overloaded, "too many changes are in progress"));
        };
        let work = async move {
            let response = next.run(request).await;
            drop(permit);
            response
        };
        let task = tasks.spawn(work.in_current_span());
        task.await.map_err(|error| Problem::internal("cannot answer a request", &error))
    }
}

/// Whether a request runs to its end without its client. A request to `/mcp` does not, because its client cancels
/// it by disconnecting; the changes that it makes do.
pub(super) fn outlives_client(request: &Request) -> bool {
    let changes = match *request.method() {
        Method::POST | Method::PUT | Method::PATCH | Method::DELETE => true,
        Method::GET | Method::HEAD | Method::OPTIONS => false,
        _ => false,
    };
    let path = request.uri().path();
    changes && !path.ends_with("/exec") && path != "/mcp"
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn only_exec_notices_that_its_client_disconnected() {
        let check = |method: &str, path: &str, expected: bool| {
            let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
            assert_eq!(outlives_client(&request), expected, "{method} {path}");
        };
        check("DELETE", "/api/threads/a", true);
        check("POST", "/api/leases/a/fork", true);
        check("PUT", "/api/threads/a/fs/write?path=/workspace/x", true);
        check("PATCH", "/api/terminals/a/env", true);
        check("GET", "/api/threads", false);
        check("POST", "/api/threads/a/exec", false);
        check("POST", "/api/terminals/a/exec?x=1", false);
        check("POST", "/mcp", false);
    }
}
