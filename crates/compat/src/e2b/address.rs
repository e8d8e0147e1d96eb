//! The sandbox of a request to its daemon, and whether the request is authorized.
//!
//! Clients identify the sandbox in one of four ways: by the host `PORT-ID.DOMAIN`, by the header `E2b-Sandbox-Id`,
//! by the access token alone, or by the signature of a link to a file.

use axum::{
    extract::{FromRequestParts, Request},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts, uri::Authority},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};

use super::{
    E2bRefusal,
    connect::{ConnectCode, ConnectError},
    link::{FileQuery, Signature},
    vendor,
};
use adapter::{Adapter, instance::home_of, port::unreachable};
use api::key::Operation;
use model::{Env, ThreadId};
use store::SandboxRecord;

/// The header that names the sandbox of a request.
pub const SANDBOX_ID: &str = "e2b-sandbox-id";
/// The port of the daemon in every sandbox.
const DAEMON_PORT: u16 = 49_983;

/// The prefix of the paths of a volume's content.
const CONTENT_PREFIX: &str = "/volumecontent/";

/// Whether the body is a file of a volume, which is streamed and may be large.
pub fn is_file_upload(path: &str) -> bool {
    path.starts_with(CONTENT_PREFIX) && path.ends_with("/file")
}

/// The sandbox and port that a request is for; the guard adds it to the request's extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addressed {
    pub(super) id: ThreadId,
    port: u16,
}

impl Addressed {
    pub fn id(&self) -> &ThreadId {
        &self.id
    }

    /// The daemon of a sandbox.
    pub(super) fn daemon(id: ThreadId) -> Addressed {
        Addressed { id, port: DAEMON_PORT }
    }
}

/// The access that the credential of a request grants.
#[derive(Debug, PartialEq, Eq)]
pub enum Access {
    /// The request is not for this API.
    Unclaimed,
    /// The request has a key for this sandbox only.
    Granted(Addressed),
    /// The request has the key of its volume.
    Content,
    /// The request has no key of a sandbox; the owner's token opens every sandbox.
    OwnerOnly(Option<Addressed>),
    /// The key is invalid.
    Refused(&'static str),
}

/// Whether a path belongs to the daemon.
fn is_daemon(path: &str) -> bool {
    path.starts_with("/process.Process/")
        || path.starts_with("/filesystem.Filesystem/")
        || matches!(path, "/files" | "/health" | "/envs")
}

/// Whether a path belongs to this API.
pub fn is_path(path: &str) -> bool {
    let rest = ["/v2", "/v3"].iter().find_map(|version| path.strip_prefix(version)).unwrap_or(path);
    let is_below =
        |name: &str| rest.strip_prefix(name).is_some_and(|it| it.is_empty() || it.starts_with('/'));
    is_daemon(path)
        || ["/sandboxes", "/templates", "/snapshots", "/volumes", "/volumecontent"]
            .into_iter()
            .any(is_below)
}

/// The port, the sandbox and the rest of a host `PORT-ID.REST`.
pub fn split_host(host: &Authority) -> Option<(u16, ThreadId, Authority)> {
    let (first, rest) = host.as_str().split_once('.')?;
    let (port, id) = first.split_once('-')?;
    let rest: Authority = rest.parse().ok()?;
    // The rest must be a domain name: an IP address has no subdomains.
    let is_name = rest.host().rsplit('.').next()?.bytes().any(|byte| byte.is_ascii_alphabetic());
    // An id contains no dash, or is a UUID.
    (is_name && (!id.contains('-') || uuid::Uuid::try_parse(id).is_ok())).then_some(())?;
    Some((port.parse().ok()?, id.parse().ok()?, rest))
}

/// The domain of a host `api.DOMAIN`, which is the control plane for clients with `E2B_DOMAIN`.
pub fn domain_of_api(host: &Authority) -> Option<Authority> {
    let (first, rest) = host.as_str().split_once('.')?;
    first.eq_ignore_ascii_case("api").then_some(())?;
    rest.parse().ok()
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Parses a sandbox id. Older clients append the id of a machine.
pub fn sandbox_id(text: &str) -> Option<ThreadId> {
    text.split('-').next()?.parse().ok()
}

fn addressed(host: &Authority, headers: &HeaderMap) -> Option<Addressed> {
    if let Some((port, id, _)) = split_host(host) {
        return Some(Addressed { id, port });
    }
    let id = sandbox_id(header(headers, SANDBOX_ID)?)?;
    let port = header(headers, "e2b-sandbox-port").and_then(|port| port.parse().ok());
    Some(Addressed { id, port: port.unwrap_or(DAEMON_PORT) })
}

/// The sandbox and the port of a request to a program in a sandbox; `None` for a request to the daemon.
pub fn to_program(host: &Authority, headers: &HeaderMap) -> Option<(ThreadId, u16)> {
    let Addressed { id, port } = addressed(host, headers)?;
    (port != DAEMON_PORT).then_some((id, port))
}

/// The access of a request to the daemon of a sandbox or to a volume.
pub fn access(app: &Adapter, request: &Request, host: &Authority) -> Access {
    let (path, headers) = (request.uri().path(), request.headers());
    if let Some((volume, _)) =
        path.strip_prefix(CONTENT_PREFIX).and_then(|rest| rest.split_once('/'))
    {
        let given = header(headers, "authorization").and_then(|it| it.strip_prefix("Bearer "));
        return match given.and_then(|given| app.keys.opens_volume(volume, given)) {
            Some(true) => Access::Content,
            Some(false) => Access::Refused("invalid volume key"),
            None => Access::Unclaimed,
        };
    }
    let named = addressed(host, headers);
    let token = header(headers, "x-access-token");
    // The server's own metrics have the same path as the daemon's.
    if !is_daemon(path) && !(path == "/metrics" && (named.is_some() || token.is_some())) {
        return Access::Unclaimed;
    }
    if app.auth.is_open() && token.is_none() {
        return Access::OwnerOnly(named);
    }
    if let Some(token) = token {
        return match (app.keys.opens(token), named) {
            (Some(id), Some(named)) if id == named.id => Access::Granted(named),
            (Some(id), None) => Access::Granted(Addressed::daemon(id)),
            (None, Some(named)) if app.auth.token(token) => Access::Granted(named),
            _ => Access::Refused("invalid access token"),
        };
    }
    if path == "/files" {
        let query = request.uri().query().unwrap_or_default();
        let operation = match request.method().as_str() {
            "GET" | "HEAD" => Operation::Read,
            _ => Operation::Write,
        };
        // An invalid query grants nothing; for the owner, the route reports the error.
        let link = FileQuery::parse(query).unwrap_or_default();
        match link.signature(app, operation, named.as_ref().map(|named| &named.id)) {
            Some(Signature::Valid(id)) => {
                return Access::Granted(named.unwrap_or_else(|| Addressed::daemon(id)));
            }
            Some(Signature::Invalid(reason)) => return Access::Refused(reason),
            None => {}
        }
    }
    Access::OwnerOnly(named)
}

/// A request to the daemon of a sandbox: the sandbox, resumed if needed, and the user.
pub struct DaemonCall {
    pub sandbox: SandboxRecord,
    user: Option<String>,
}

impl FromRequestParts<Adapter> for DaemonCall {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &Adapter) -> Result<Self, Response> {
        let Some(Addressed { id, .. }) = parts.extensions.get::<Addressed>().cloned() else {
            return Err(unreachable("", "The sandbox was not found", None));
        };
        let found = app.sandboxes.get(&id).await;
        let found = found.map_err(|error| E2bRefusal::from(error).into_response())?;
        let Some(sandbox) = found else {
            return Err(unreachable(id.as_str(), "The sandbox was not found", None));
        };
        vendor::wake(app, &sandbox, |error| E2bRefusal::from(error).into_response()).await?;
        let user = user(parts).map_err(IntoResponse::into_response)?;
        Ok(DaemonCall { sandbox, user })
    }
}

/// The user of a request: from the query, else from `Authorization`. A signed link always has the user in its
/// query.
fn user(parts: &Parts) -> Result<Option<String>, E2bRefusal> {
    let query = FileQuery::parse(parts.uri.query().unwrap_or_default())
        .map_err(|message| E2bRefusal::new(StatusCode::BAD_REQUEST, message))?;
    if query.user().is_some() || query.is_signed() {
        return Ok(query.user().map(str::to_owned));
    }
    Ok(parts.headers.get(header::AUTHORIZATION).and_then(basic_user))
}

/// The user name in an `Authorization: Basic` header.
fn basic_user(value: &HeaderValue) -> Option<String> {
    let (scheme, rest) = value.to_str().ok()?.split_once(' ')?;
    let text = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
    scheme.eq_ignore_ascii_case("basic").then_some(())?;
    Some(text.split(':').next()?.to_owned())
}

impl DaemonCall {
    /// The home directory of the user.
    pub fn home(&self) -> Result<&str, ConnectError> {
        home_of(&self.sandbox, self.user.as_deref()).ok_or_else(|| {
            let user = self.user.as_deref().unwrap_or_default();
            ConnectError::new(ConnectCode::Unauthenticated, format!("invalid username: '{user}'"))
        })
    }

    /// The home directory of the user, with the error of a plain HTTP request.
    pub fn home_of_files(&self) -> Result<&str, E2bRefusal> {
        home_of(&self.sandbox, self.user.as_deref()).ok_or_else(|| {
            let user = self.user.as_deref().unwrap_or_default();
            let message = format!("error looking up user '{user}': user: unknown user {user}");
            E2bRefusal::new(StatusCode::UNAUTHORIZED, message)
        })
    }

    /// The variables that differ for this user.
    pub fn environment(&self) -> Env {
        if self.user.as_deref() != Some("root") {
            return Env::new();
        }
        let home = home_of(&self.sandbox, Some("root")).unwrap_or("/");
        let pairs = [("HOME", home), ("USER", "root"), ("LOGNAME", "root")];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_names_port_and_sandbox() {
        let check = |host: &str, expected: Option<(u16, &str, &str)>| {
            let found = split_host(&host.parse().unwrap());
            let found = found.as_ref().map(|(port, id, rest)| (*port, id.as_str(), rest.as_str()));
            assert_eq!(found, expected, "{host}");
        };
        check("49983-iabc.localhost:7832", Some((49983, "iabc", "localhost:7832")));
        check("3000-iabc.stead.example", Some((3000, "iabc", "stead.example")));
        let uuid = "0193b3a5-7c1e-7b6e-8f1a-0c9d2e4f6a81";
        check(&format!("80-{uuid}.localhost"), Some((80, uuid, "localhost")));
        check("80-i-stead.localhost", None);
        check("localhost:7832", None);
        check("127.0.0.1:7832", None);
        check("1-i.127.0.0.1:7832", None);
        check("stead.example", None);
        check("99999-i.stead.example", None);
        check("80-.stead.example", None);
        check("my-site.example", None);
    }

    #[test]
    fn paths_of_the_daemon_and_of_the_control_plane_are_recognized() {
        for path in ["/files", "/health", "/sandboxes", "/v2/sandboxes/x/connect", "/v3/templates"]
        {
            assert!(is_path(path), "{path}");
        }
        for path in ["/", "/metrics", "/filesystem", "/sandboxes2", "/v2", "/api/threads"] {
            assert!(!is_path(path), "{path}");
        }
    }
}
