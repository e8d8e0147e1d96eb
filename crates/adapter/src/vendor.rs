//! The differences between the APIs that use the shared code.

use std::fmt::Debug;

use api::door::Answer;
use axum::{http::StatusCode, response::Response};
use futures_util::future::BoxFuture;

use crate::Adapter;
use store::SandboxRecord;

/// An API that sandboxes are created through.
pub trait VendorApi: Debug + Send + Sync {
    /// The name of this API in the rows of sandboxes and templates.
    fn origin(&self) -> &'static str;

    /// The account that programs expect to run as.
    fn user(&self) -> &'static str;

    /// Whether the lifetime of a sandbox also ends while it is paused.
    fn expires_while_paused(&self) -> bool;

    /// Whether the name of a template may carry a tag, as in `name:tag`.
    fn names_have_tags(&self) -> bool;

    /// Whether the name of an image may also name a template or snapshot of this server.
    fn images_may_be_templates(&self) -> bool;

    /// The status for a request that lacks the token of a private port.
    fn port_refusal(&self) -> StatusCode;

    /// Whether a signed link to a port was revoked before it expired.
    fn is_revoked(&self, _sandbox: &SandboxRecord, _token: &str) -> bool {
        false
    }

    /// Makes a sandbox ready for a request to one of its ports, or returns the response that refuses it.
    fn wake<'a>(
        &'a self,
        app: &'a Adapter,
        sandbox: &'a SandboxRecord,
    ) -> BoxFuture<'a, Result<(), Response>>;

    /// Returns the built-in handler of a port on which no program of the sandbox listens.
    fn built_in(&self, _app: &Adapter, _sandbox: &SandboxRecord, _port: u16) -> Option<Answer> {
        None
    }
}

/// The home directory of the account that programs run as.
pub fn home(vendor: &dyn VendorApi) -> String {
    standard_home(vendor.user())
}

/// The home directory of an account in a sandbox with a root file system of its own.
pub fn standard_home(user: &str) -> String {
    format!("/home/{user}")
}
