//! Other APIs on our port.
//!
//! The guard walks a list of [`Door`]s and names no vendor. A door says which requests are its own, which
//! credentials open them, and how a refusal is phrased; the guard decides everything else. Routes of a
//! door are merged with ours by [`router`](crate::router).

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
    /// Whether a path belongs to this API; then it phrases refusals.
    fn has_path(&self, path: &str) -> bool;

    /// A refusal in the words of this API.
    fn refuse(&self, problem: Problem) -> Response;

    /// Returns the server's own host if `host` is a name this API's clients derive from it.
    fn server_host(&self, _host: &Authority) -> Option<Authority> {
        None
    }

    /// Returns the program inside a sandbox that a request is addressed to. Nothing of ours answers such a
    /// request.
    fn program(&self, _host: &Authority, _headers: &HeaderMap) -> Option<Program> {
        None
    }

    /// Reads the credential a request carries for this API, and may add to its extensions what routes of
    /// this API need to know.
    fn credential(&self, request: &mut Request, host: &Authority) -> Credential;

    /// Returns the server's token where this API's clients send it in a header of their own.
    fn token<'a>(&self, _headers: &'a HeaderMap) -> Option<&'a [u8]> {
        None
    }

    /// Whether a request needs no token, because the route itself asks for one.
    fn is_open(&self, _method: &Method, _path: &str) -> bool {
        false
    }

    /// Whether the body is a file, which is streamed and may be large.
    fn is_file_upload(&self, _method: &Method, _path: &str) -> bool {
        false
    }

    /// Whether a body is sent for as long as the call lasts.
    fn streams_input(&self, _path: &str) -> bool {
        false
    }

    /// Whether a query parameter is a list that clients send as repeated values.
    fn is_list(&self, _path: &str, _parameter: &str) -> bool {
        false
    }

    /// Returns what answers an admitted request in place of a native route.
    fn replacement(&self, _request: &Request) -> Option<Answer> {
        None
    }
}

/// Answers one request.
pub type Answer = Box<dyn FnOnce(Request) -> BoxFuture<'static, Response> + Send>;

/// A program that listens inside a sandbox.
pub struct Program {
    /// Counted against the budget of this sandbox.
    pub sandbox: ThreadId,
    /// Passes the request on.
    pub answer: Answer,
}

/// What a request proves to a door.
pub enum Credential {
    /// The request is not this door's.
    Unclaimed,
    /// The request is this door's and carries no credential of its own: only the owner's token opens it.
    None,
    /// A credential that opens what this names and nothing else.
    Holder(String),
    /// A signature that can only be checked with rows of the store.
    Signature { holder: String, check: BoxFuture<'static, Result<(), &'static str>> },
    /// A credential that is wrong.
    Refused(&'static str),
}

/// What a request is addressed to beyond its path. A door sets it, so that equal requests to different
/// sandboxes are told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addressee(pub String);

/// Marks the answer of a [`Program`], which keeps its own headers.
#[derive(Debug, Clone, Copy)]
pub struct Proxied;

/// All doors, asked in this order. Cheap to clone.
#[derive(Clone, Default)]
pub struct Doors(Arc<[Arc<dyn Door>]>);

impl Doors {
    pub fn new(doors: Vec<Arc<dyn Door>>) -> Doors {
        Doors(doors.into())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Door>> {
        self.0.iter()
    }

    /// The door a path belongs to.
    pub(crate) fn of_path(&self, path: &str) -> Option<&Arc<dyn Door>> {
        self.iter().find(|door| door.has_path(path))
    }

    /// The first credential that a door claims.
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
