//! Daytona's API for the guard. Ports of its sandboxes have host names like E2B's, whose `Door` serves them.

use api::{Door, door::Credential, error::Problem};
use axum::{
    extract::Request,
    http::{Method, uri::Authority},
    response::{IntoResponse, Response},
};

use super::{DaytonaRefusal, link::FileLink};
use adapter::Adapter;

/// The prefix of all paths of this API.
const PREFIX: &str = "/daytona";
/// Query parameters that clients send once per value.
const LISTS: [&str; 6] =
    ["state", "sandbox_ids", "states", "snapshots", "regionIds", "metricNames"];

/// The entrance of Daytona's clients.
pub struct DaytonaDoor(pub Adapter);

impl Door for DaytonaDoor {
    fn has_path(&self, path: &str) -> bool {
        is_path(path)
    }

    fn refuse(&self, problem: Problem) -> Response {
        DaytonaRefusal::from(problem).into_response()
    }

    fn credential(&self, request: &mut Request, _host: &Authority) -> Credential {
        let Some(link) = FileLink::of(request) else { return Credential::Unclaimed };
        let (app, holder) = (self.0.clone(), format!("link {}", request.uri().path()));
        Credential::Signature { holder, check: Box::pin(async move { link.opens(&app).await }) }
    }

    /// A client of the event socket sends its token in the first message and receives nothing before.
    fn is_open(&self, method: &Method, path: &str) -> bool {
        *method == Method::GET && matches!(path, "/daytona/socket.io/" | "/daytona/api/socket.io/")
    }

    fn is_file_upload(&self, method: &Method, path: &str) -> bool {
        *method == Method::POST && is_file_upload(path)
    }

    fn is_list(&self, path: &str, parameter: &str) -> bool {
        is_path(path) && LISTS.contains(&parameter)
    }
}

/// Whether a path belongs to this API.
fn is_path(path: &str) -> bool {
    path.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether the body is a file, which is streamed and may be large.
fn is_file_upload(path: &str) -> bool {
    let is_route = |name: &str| path.ends_with(name);
    is_path(path)
        && ["/files/bulk-upload", "/files/upload", "/files/upload-v2"].into_iter().any(is_route)
}
