//! Which sandbox a request to the daemon in it is for, and whether it may come in.
//!
//! Clients tell in one of four ways: by the host `PORT-ID.DOMAIN`, by the header `E2b-Sandbox-Id`, by the
//! access token alone, and by the signature of a link to a file.

use axum::{
    extract::{FromRequestParts, Request},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts, uri::Authority},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};

use super::{
    E2bRefusal,
    connect::{ConnectCode, Failed},
    link::{FileQuery, Signature},
    vendor,
};
use adapter::{Adapter, instance::home_of, key::Operation, port::unreachable};
use model::{Env, ThreadId};
use store::SandboxRecord;

/// The port that the daemon has in every sandbox.
const DAEMON: u16 = 49_983;

/// What the paths of a volume's content begin with.
const CONTENT: &str = "/volumecontent/";

/// Whether the body is a file of a volume, which is streamed and may be large.
pub fn is_file_upload(path: &str) -> bool {
    path.starts_with(CONTENT) && path.ends_with("/file")
}

/// The sandbox a request is for; the guard puts it into the request.
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
        Addressed { id, port: DAEMON }
    }
}

/// What the credential of a request opens.
#[derive(Debug, PartialEq, Eq)]
pub enum Access {
    /// The request is for something else.
    Unclaimed,
    /// It has a key for this sandbox, and for nothing else.
    Granted(Addressed),
    /// It has the key of the volume whose content it is for.
    Content,
    /// It has none; the owner's token opens every sandbox.
    OwnerOnly(Option<Addressed>),
    /// What it has is wrong.
    Refused(&'static str),
}

/// Whether a path is one of the daemon's.
fn is_daemon(path: &str) -> bool {
    path.starts_with("/process.Process/")
        || path.starts_with("/filesystem.Filesystem/")
        || matches!(path, "/files" | "/health" | "/envs")
}

/// Whether a path is one of E2B's.
pub fn is_path(path: &str) -> bool {
    let rest = ["/v2", "/v3"].iter().find_map(|version| path.strip_prefix(version)).unwrap_or(path);
    let below =
        |name: &str| rest.strip_prefix(name).is_some_and(|it| it.is_empty() || it.starts_with('/'));
    is_daemon(path)
        || ["/sandboxes", "/templates", "/snapshots", "/volumes", "/volumecontent"]
            .into_iter()
            .any(below)
}

/// The port, the sandbox and the rest of a host `PORT-ID.REST`.
pub fn split_host(host: &Authority) -> Option<(u16, ThreadId, Authority)> {
    let (first, rest) = host.as_str().split_once('.')?;
    let (port, id) = first.split_once('-')?;
    let rest: Authority = rest.parse().ok()?;
    // What is behind it must be a name: an address has no names below it.
    let is_name = rest.host().rsplit('.').next()?.bytes().any(|byte| byte.is_ascii_alphabetic());
    // An id has no dash in it, or is a UUID.
    (is_name && (!id.contains('-') || uuid::Uuid::try_parse(id).is_ok())).then_some(())?;
    Some((port.parse().ok()?, id.parse().ok()?, rest))
}

/// The domain of a host `api.DOMAIN`, which is where clients with `E2B_DOMAIN` look for the control
/// plane.
pub fn domain_of_api(host: &Authority) -> Option<Authority> {
    let (first, rest) = host.as_str().split_once('.')?;
    first.eq_ignore_ascii_case("api").then_some(())?;
    rest.parse().ok()
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// An id as older clients write it, with the name of a machine behind it.
pub fn sandbox_id(text: &str) -> Option<ThreadId> {
    text.split('-').next()?.parse().ok()
}

fn named(host: &Authority, headers: &HeaderMap) -> Option<Addressed> {
    if let Some((port, id, _)) = split_host(host) {
        return Some(Addressed { id, port });
    }
    let id = sandbox_id(header(headers, "e2b-sandbox-id")?)?;
    let port = header(headers, "e2b-sandbox-port").and_then(|port| port.parse().ok());
    Some(Addressed { id, port: port.unwrap_or(DAEMON) })
}

/// The sandbox and the port that a request is for, if it is for a program inside and not for the daemon.
pub fn to_program(host: &Authority, headers: &HeaderMap) -> Option<(ThreadId, u16)> {
    let Addressed { id, port } = named(host, headers)?;
    (port != DAEMON).then_some((id, port))
}

/// What a request to the daemon of a sandbox, or to a volume, may do.
pub fn access(app: &Adapter, request: &Request, host: &Authority) -> Access {
    let (path, headers) = (request.uri().path(), request.headers());
    if let Some((volume, _)) = path.strip_prefix(CONTENT).and_then(|rest| rest.split_once('/')) {
        let given = header(headers, "authorization").and_then(|it| it.strip_prefix("Bearer "));
        return match given.and_then(|given| app.keys().opens_volume(volume, given)) {
            Some(true) => Access::Content,
            Some(false) => Access::Refused("the key of the volume is wrong"),
            None => Access::Unclaimed,
        };
    }
    let named = named(host, headers);
    let token = header(headers, "x-access-token");
    // The server's own metrics have the same path as the daemon's.
    if !is_daemon(path) && !(path == "/metrics" && (named.is_some() || token.is_some())) {
        return Access::Unclaimed;
    }
    if app.auth.is_open() && token.is_none() {
        return Access::OwnerOnly(named);
    }
    if let Some(token) = token {
        return match (app.keys().opens(token), named) {
            (Some(id), Some(named)) if id == named.id => Access::Granted(named),
            (Some(id), None) => Access::Granted(Addressed::daemon(id)),
            (None, Some(named)) if app.auth.token(token) => Access::Granted(named),
            _ => Access::Refused("the access token is wrong"),
        };
    }
    if path == "/files" {
        let query = request.uri().query().unwrap_or_default();
        let operation = match request.method().as_str() {
            "GET" | "HEAD" => Operation::Read,
            _ => Operation::Write,
        };
        // What cannot be read opens nothing; to the owner the route says what is wrong with it.
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

/// The sandbox a request to its daemon is for, awake, and the user it is made as.
pub struct E2bGuest {
    pub sandbox: SandboxRecord,
    user: Option<String>,
}

impl FromRequestParts<Adapter> for E2bGuest {
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
        Ok(E2bGuest { sandbox, user })
    }
}

/// The user that a request is made as: the one in its query, else the one in its `Authorization`. A
/// signed link names its user itself.
fn user(parts: &Parts) -> Result<Option<String>, E2bRefusal> {
    let query = FileQuery::parse(parts.uri.query().unwrap_or_default())
        .map_err(|message| E2bRefusal::new(StatusCode::BAD_REQUEST, message))?;
    if query.user().is_some() || query.is_signed() {
        return Ok(query.user().map(str::to_owned));
    }
    Ok(parts.headers.get(header::AUTHORIZATION).and_then(basic_user))
}

/// The user of an `Authorization: Basic`.
fn basic_user(value: &HeaderValue) -> Option<String> {
    let (scheme, rest) = value.to_str().ok()?.split_once(' ')?;
    let text = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
    scheme.eq_ignore_ascii_case("basic").then_some(())?;
    Some(text.split(':').next()?.to_owned())
}

impl E2bGuest {
    /// The home of the user.
    pub fn home(&self) -> Result<&str, Failed> {
        home_of(&self.sandbox, self.user.as_deref()).ok_or_else(|| {
            let user = self.user.as_deref().unwrap_or_default();
            Failed::new(ConnectCode::Unauthenticated, format!("invalid username: '{user}'"))
        })
    }

    /// The home of the user, for a request that is no RPC.
    pub fn home_of_files(&self) -> Result<&str, E2bRefusal> {
        home_of(&self.sandbox, self.user.as_deref()).ok_or_else(|| {
            let user = self.user.as_deref().unwrap_or_default();
            let message = format!("error looking up user '{user}': user: unknown user {user}");
            E2bRefusal::new(StatusCode::UNAUTHORIZED, message)
        })
    }

    /// What the environment of this user has that another's has not.
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
    fn a_host_tells_port_and_sandbox() {
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
    fn paths_of_the_daemon_and_of_the_control_plane() {
        for path in ["/files", "/health", "/sandboxes", "/v2/sandboxes/x/connect", "/v3/templates"]
        {
            assert!(is_path(path), "{path}");
        }
        for path in ["/", "/metrics", "/filesystem", "/sandboxes2", "/v2", "/api/threads"] {
            assert!(!is_path(path), "{path}");
        }
    }
}
