//! Other APIs on the same port.
//!
//! The guard walks a list of [`Door`]s and names no vendor. A door defines which requests belong to its API,
//! which credentials authorize them, and the format of its errors; the guard decides everything else.
//! [`router`](crate::router) merges the routes of doors with the native ones.

use std::sync::Arc;

use axum::{
    extract::Request,
    http::{HeaderMap, Method, uri::Authority},
    response::Response,
};
use futures_util::future::BoxFuture;
use model::ThreadId;

use super::error::Problem;

/// An API beside the native one.
pub trait Door: Send + Sync {
    /// Whether a path belongs to this API; then errors are sent in its format.
    fn has_path(&self, path: &str) -> bool;

    /// Converts a problem into the error format of this API.
    fn refuse(&self, problem: Problem) -> Response;

    /// Returns the server's own host if `host` is a name this API's clients derive from it.
    fn server_host(&self, _host: &Authority) -> Option<Authority> {
        None
    }

    /// Returns the program inside a sandbox that a request is addressed to. No route of the server answers
    /// such a request.
    fn program(&self, _host: &Authority, _headers: &HeaderMap) -> Option<SandboxProgram> {
        None
    }

    /// Reads the credential of a request for this API. May add extensions for the routes of this API.
    fn credential(&self, request: &mut Request, host: &Authority) -> Credential;

    /// Returns the server's token where this API's clients send it in a header of their own.
    fn token<'a>(&self, _headers: &'a HeaderMap) -> Option<&'a [u8]> {
        None
    }

    /// The headers of this API that a request may have only once, in lower case.
    fn single_headers(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether the guard admits a request without a token, because the route authenticates it.
    fn is_open(&self, _method: &Method, _path: &str) -> bool {
        false
    }

    /// Whether the body is a file, which is streamed and may be large.
    fn is_file_upload(&self, _method: &Method, _path: &str) -> bool {
        false
    }

    /// Whether the client streams the body for the duration of the call.
    fn streams_input(&self, _path: &str) -> bool {
        false
    }

    /// Whether a query parameter is a list, which clients send as repeated values.
    fn is_list(&self, _path: &str, _parameter: &str) -> bool {
        false
    }

    /// Returns a handler that replaces the native route of an admitted request.
    fn replacement(&self, _request: &Request) -> Option<Answer> {
        None
    }
}

/// Handles one request.
pub type Answer = Box<dyn FnOnce(Request) -> BoxFuture<'static, Response> + Send>;

/// A program that listens inside a sandbox.
pub struct SandboxProgram {
    /// The sandbox whose budget the request is counted in.
    pub sandbox: ThreadId,
    /// Forwards the request.
    pub answer: Answer,
}

/// The credential of a request, as a door reads it.
pub enum Credential {
    /// The request is not this door's.
    Unclaimed,
    /// The request is this door's and has no credential of this API: only the owner's token authorizes it.
    None,
    /// A credential for the named resource and nothing else.
    Holder(String),
    /// A signature that must be checked against the store.
    Signature { holder: String, check: BoxFuture<'static, Result<(), &'static str>> },
    /// An invalid credential, with the reason.
    Refused(&'static str),
}

/// The sandbox that a request is addressed to by its host or headers. A door sets it, so that requests with
/// equal paths to different sandboxes have different fingerprints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addressee(pub String);

/// Marks the response of a [`SandboxProgram`], which keeps its own headers.
#[derive(Debug, Clone, Copy)]
pub struct Proxied;

/// All doors, in the order of their precedence. Cheap to clone.
#[derive(Clone, Default)]
pub struct Doors(Arc<[Arc<dyn Door>]>);

impl Doors {
    pub fn new(doors: Vec<Arc<dyn Door>>) -> Doors {
        Doors(doors.into())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Door>> {
        self.0.iter()
    }

    /// Returns the door that a path belongs to.
    pub(crate) fn of_path(&self, path: &str) -> Option<&Arc<dyn Door>> {
        self.iter().find(|door| door.has_path(path))
    }

    /// Returns the first credential that a door claims.
    pub(crate) fn credential(&self, request: &mut Request, host: &Authority) -> Credential {
        for door in self.iter() {
            match door.credential(request, host) {
                Credential::Unclaimed => {}
                claimed => return claimed,
            }
        }
        Credential::Unclaimed
    }
}
