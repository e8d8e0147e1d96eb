//! Daytona's side of the code that both APIs share.

use axum::{http::StatusCode, response::Response};
use futures_util::future::BoxFuture;

use super::{ORIGIN, link::is_revoked};
use adapter::{Adapter, port::unreachable, vendor::VendorApi};
use model::Desired;
use store::SandboxRecord;

#[derive(Debug)]
pub struct DaytonaApi;

impl VendorApi for DaytonaApi {
    fn origin(&self) -> &'static str {
        ORIGIN
    }

    fn user(&self) -> &'static str {
        "daytona"
    }

    fn expires_while_paused(&self) -> bool {
        true
    }

    fn names_have_tags(&self) -> bool {
        false
    }

    fn images_may_be_templates(&self) -> bool {
        true
    }

    fn port_refusal(&self) -> StatusCode {
        StatusCode::UNAUTHORIZED
    }

    fn is_revoked(&self, sandbox: &SandboxRecord, token: &str) -> bool {
        is_revoked(sandbox, token)
    }

    fn wake<'a>(
        &'a self,
        app: &'a Adapter,
        sandbox: &'a SandboxRecord,
    ) -> BoxFuture<'a, Result<(), Response>> {
        Box::pin(async move {
            if sandbox.lease.desired == Desired::Stopped {
                let id = sandbox.id().as_str();
                return Err(unreachable(id, "The sandbox is not started", None));
            }
            app.used(sandbox.id()).await;
            Ok(())
        })
    }
}
