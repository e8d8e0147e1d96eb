//! E2B's API for the guard.

use api::{
    Door,
    door::{Addressee, Answer, Credential, SandboxProgram},
    error::Problem,
};
use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, Method, uri::Authority},
    response::{IntoResponse, Response},
};
use futures_util::future::BoxFuture;

use super::{
    E2bRefusal,
    address::{self, Access, Addressed, DaemonCall},
    template, usage,
};
use adapter::{Adapter, port, vendor::VendorApi};

/// The body of this call is a program's input, sent for as long as the program runs.
const STREAMED_INPUT: &str = "/process.Process/StreamInput";
/// Query parameters that clients send once per value.
const LISTS: [&str; 2] = ["state", "sandbox_ids"];

/// The entrance of E2B's clients.
pub struct E2bDoor {
    pub app: Adapter,
    /// All APIs: a port may belong to a sandbox of any of them.
    pub vendors: &'static [&'static dyn VendorApi],
}

impl Door for E2bDoor {
    fn has_path(&self, path: &str) -> bool {
        address::is_path(path)
    }

    fn refuse(&self, problem: Problem) -> Response {
        E2bRefusal::from(problem).into_response()
    }

    fn server_host(&self, host: &Authority) -> Option<Authority> {
        match address::split_host(host) {
            Some((_, _, rest)) => Some(rest),
            None => address::domain_of_api(host),
        }
    }

    fn program(&self, host: &Authority, headers: &HeaderMap) -> Option<SandboxProgram> {
        let (sandbox, port) = address::to_program(host, headers)?;
        let (app, vendors, id) = (self.app.clone(), self.vendors, sandbox.clone());
        let answer = move |request| -> BoxFuture<'static, Response> {
            Box::pin(async move { port::serve(&app, vendors, &id, port, request).await })
        };
        Some(SandboxProgram { sandbox, answer: Box::new(answer) })
    }

    fn single_headers(&self) -> &'static [&'static str] {
        &[address::SANDBOX_ID]
    }

    fn credential(&self, request: &mut Request, host: &Authority) -> Credential {
        let path = request.uri().path().to_owned();
        if template::upload::may_upload(&self.app, request.method(), request.uri()) {
            return Credential::Holder(format!("upload {path}"));
        }
        match address::access(&self.app, request, host) {
            Access::Unclaimed => Credential::Unclaimed,
            Access::Granted(sandbox) => {
                let holder = format!("sandbox {}", sandbox.id());
                address_to(sandbox, request);
                Credential::Holder(holder)
            }
            Access::Content => {
                let volume = path.split('/').nth(2).unwrap_or_default();
                Credential::Holder(format!("volume {volume}"))
            }
            Access::OwnerOnly(sandbox) => {
                if let Some(sandbox) = sandbox {
                    address_to(sandbox, request);
                }
                Credential::None
            }
            Access::Refused(detail) => Credential::Refused(detail),
        }
    }

    fn token<'a>(&self, headers: &'a HeaderMap) -> Option<&'a [u8]> {
        Some(headers.get("x-api-key")?.as_bytes())
    }

    fn is_file_upload(&self, method: &Method, path: &str) -> bool {
        match *method {
            Method::PUT => {
                address::is_file_upload(path) || template::upload::uploaded_hash(path).is_some()
            }
            Method::POST => path == "/files",
            _ => false,
        }
    }

    fn streams_input(&self, path: &str) -> bool {
        path == STREAMED_INPUT
    }

    fn is_list(&self, path: &str, parameter: &str) -> bool {
        is_list(path, parameter)
    }

    /// The metrics of a sandbox's daemon have the path of the server's own metrics.
    fn replacement(&self, request: &Request) -> Option<Answer> {
        let is_addressed = request.extensions().get::<Addressed>().is_some();
        (is_addressed && request.uri().path() == "/metrics").then_some(())?;
        let app = self.app.clone();
        Some(Box::new(move |request| {
            Box::pin(async move {
                let (mut parts, _) = request.into_parts();
                match DaemonCall::from_request_parts(&mut parts, &app).await {
                    Ok(call) => usage::daemon_metrics(State(app), call).await.into_response(),
                    Err(refused) => refused,
                }
            })
        }))
    }
}

fn address_to(sandbox: Addressed, request: &mut Request) {
    request.extensions_mut().insert(Addressee(sandbox.id().to_string()));
    request.extensions_mut().insert(sandbox);
}

fn is_list(path: &str, parameter: &str) -> bool {
    let is_list_route = path.starts_with("/sandboxes/") && path.ends_with("/metrics")
        || matches!(path, "/sandboxes" | "/v2/sandboxes");
    is_list_route && LISTS.contains(&parameter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_list_parameters_may_be_repeated() {
        assert!(is_list("/v2/sandboxes", "state"));
        assert!(!is_list("/v2/sandboxes", "limit"));
        assert!(!is_list("/files", "state"));
    }
}
