//! E2B's side of the code that both APIs share.

use std::time::Duration;

use api::{door::Answer, error::Problem};
use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures_util::future::BoxFuture;

use super::{ORIGIN, interpreter};
use adapter::{Adapter, port::unreachable, sandbox::is_paused, vendor::VendorApi};
use engine::sandbox::{Extension, SandboxError};
use store::SandboxRecord;

/// The lifetime of a sandbox that is resumed without a timeout.
const RESUME_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub struct E2bApi;

impl VendorApi for E2bApi {
    fn origin(&self) -> &'static str {
        ORIGIN
    }

    fn user(&self) -> &'static str {
        "user"
    }

    fn expires_while_paused(&self) -> bool {
        false
    }

    fn names_have_tags(&self) -> bool {
        true
    }

    fn images_may_be_templates(&self) -> bool {
        false
    }

    fn port_refusal(&self) -> StatusCode {
        StatusCode::FORBIDDEN
    }

    fn wake<'a>(
        &'a self,
        app: &'a Adapter,
        sandbox: &'a SandboxRecord,
    ) -> BoxFuture<'a, Result<(), Response>> {
        Box::pin(
            async move { wake(app, sandbox, |error| Problem::from(error).into_response()).await },
        )
    }

    fn built_in(&self, app: &Adapter, sandbox: &SandboxRecord, port: u16) -> Option<Answer> {
        if port != interpreter::PORT {
            return None;
        }
        let (app, sandbox) = (app.clone(), sandbox.clone());
        Some(Box::new(move |request| {
            Box::pin(async move { interpreter::serve(&app, &sandbox, request).await })
        }))
    }
}

/// Resumes a paused sandbox for a request to it, if its client enabled that.
pub(super) async fn wake(
    app: &Adapter,
    sandbox: &SandboxRecord,
    failed: impl FnOnce(SandboxError) -> Response,
) -> Result<(), Response> {
    if !is_paused(sandbox) {
        return Ok(());
    }
    if !sandbox.row.auto_resume {
        return Err(unreachable(sandbox.id().as_str(), "The sandbox was not found", None));
    }
    resume(app, sandbox, None).await.map(drop).map_err(failed)
}

/// Resumes a sandbox with a lifetime that starts now; the lifetime of a running sandbox is only extended.
/// Returns whether it was paused.
pub(super) async fn resume(
    app: &Adapter,
    sandbox: &SandboxRecord,
    timeout: Option<Duration>,
) -> Result<bool, SandboxError> {
    let was_paused = is_paused(sandbox);
    let extension = match (was_paused, timeout) {
        // Set before the resume: the time spent paused would otherwise expire it at once.
        (true, timeout) => Some(Extension::Exactly(timeout.unwrap_or(RESUME_TIMEOUT))),
        (false, Some(timeout)) => Some(Extension::AtLeast(timeout)),
        (false, None) => None,
    };
    if let Some(extension) = extension {
        app.sandboxes.extend(sandbox.id(), extension).await?;
    }
    app.sandboxes.resume(sandbox).await?;
    Ok(was_paused)
}
