//! Signed links that open one file or one port without an API key.
//!
//! A client signs links to files itself, with the sandbox's signing key; rotating that key revokes them all. The
//! server creates links to ports, and can revoke each before it expires.

use axum::{
    extract::{Path, Query, State},
    http::{Method, StatusCode, header},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    DaytonaRefusal, ORIGIN,
    view::{find, port_url},
};
use adapter::Adapter;
use api::key;
use model::ThreadId;
use store::SandboxRecord;

/// The default lifetime of a link to a port.
const DEFAULT_LINK_SECONDS: u32 = 60;
/// The maximum lifetime of a link to a port.
const MAX_LINK_SECONDS: u32 = 30 * 86_400;
/// The key under which a sandbox records the salt of its signing key.
const SALT: &str = "signing";
/// The prefix of the keys under which a sandbox records revoked links to ports.
const REVOKED_PREFIX: &str = "expired.";
/// The limit of revoked links per sandbox that have not expired.
const MAX_REVOKED_LINKS: usize = 1_000;

/// The sandbox and the method of a path that a link may open.
fn link_target(path: &str) -> Option<(ThreadId, Method)> {
    let (id, rest) = path.strip_prefix("/daytona/toolbox/")?.split_once('/')?;
    let method = match rest {
        "files/download" => Method::GET,
        "files/upload-v2" => Method::POST,
        _ => return None,
    };
    Some((id.parse().ok()?, method))
}

/// The text that the signature of a link covers.
fn signed_text(method: &Method, path: &str, expires: &str) -> String {
    format!("v1:files:{method}:{path}:{expires}")
}

fn signature(key: &str, text: &str) -> String {
    let digest = key::hmac_sha256(key.as_bytes(), text.as_bytes());
    format!("v1_{}", URL_SAFE_NO_PAD.encode(digest))
}

/// A request that uses a signed link to a file.
pub struct FileLink {
    sandbox: ThreadId,
    method: Method,
    parsed: Result<SignedLink, &'static str>,
}

/// The query parameters of a link.
struct SignedLink {
    path: String,
    expires: String,
    signature: String,
}

impl FileLink {
    /// The link that a request uses; `None` if it uses none.
    pub fn of<B>(request: &axum::http::Request<B>) -> Option<FileLink> {
        let (sandbox, method) = link_target(request.uri().path())?;
        if *request.method() != method || request.headers().contains_key(header::AUTHORIZATION) {
            return None;
        }
        let (mut path, mut expires, mut signature) = (None, None, None);
        let mut is_repeated = false;
        for (name, value) in form_urlencoded::parse(request.uri().query()?.as_bytes()) {
            let field = match &*name {
                "path" => &mut path,
                "expires" => &mut expires,
                "signature" => &mut signature,
                _ => continue,
            };
            is_repeated |= field.replace(value.into_owned()).is_some();
        }
        let signature = signature?;
        let parsed = match (path, expires) {
            (Some(path), Some(expires)) if !is_repeated => {
                Ok(SignedLink { path, expires, signature })
            }
            _ => Err("a link to a file needs path and expires exactly once"),
        };
        Some(FileLink { sandbox, method, parsed })
    }

    /// Checks the signature and the expiry.
    ///
    /// # Errors
    /// The reason why the link is invalid.
    pub async fn opens(self, app: &Adapter) -> Result<(), &'static str> {
        let SignedLink { path, expires, signature: given } = self.parsed?;
        let found = app.sandboxes.get(&self.sandbox).await.ok().flatten();
        let sandbox = found.filter(|sandbox| sandbox.row.origin == ORIGIN);
        let sandbox = sandbox.ok_or("invalid signature")?;
        let text = signed_text(&self.method, &path, &expires);
        if !key::same(&signature(&signing_key_of(app, &sandbox), &text), &given) {
            return Err("invalid signature");
        }
        match expires.parse::<i64>() {
            Ok(0) => Ok(()),
            Ok(until) if app.now().at.as_second() <= until => Ok(()),
            _ => Err("the link has expired"),
        }
    }
}

fn signing_key_of(app: &Adapter, sandbox: &SandboxRecord) -> String {
    let salt = sandbox.row.extra.get(SALT).map_or("", String::as_str);
    app.keys.signing(sandbox.id(), salt)
}

/// Returns the key that signs links to files of a sandbox.
pub(super) async fn signing_key(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<String>, DaytonaRefusal> {
    let sandbox = find(&app, &name).await?;
    Ok(axum::Json(signing_key_of(&app, &sandbox)))
}

/// Replaces the signing key, which revokes all links to files.
pub(super) async fn rotate(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<String>, DaytonaRefusal> {
    let sandbox = find(&app, &name).await?;
    let salt = uuid::Uuid::now_v7().simple().to_string();
    let changed = app.sandboxes.change(sandbox.id(), |sandbox| {
        sandbox.extra.insert(SALT.to_owned(), salt.clone());
    });
    let changed = changed
        .await?
        .ok_or_else(|| DaytonaRefusal::missing(format!("Sandbox {name} not found")))?;
    Ok(axum::Json(signing_key_of(&app, &changed)))
}

/// The requested lifetime of a link.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LinkLifetime {
    expires_in_seconds: Option<u32>,
}

/// Creates a link to a port that needs no key until it expires.
pub(super) async fn signed_preview(
    State(app): State<Adapter>,
    Path((name, number)): Path<(String, u16)>,
    Query(expires): Query<LinkLifetime>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let sandbox = find(&app, &name).await?;
    let seconds = expires.expires_in_seconds.unwrap_or(DEFAULT_LINK_SECONDS);
    if !(1..=MAX_LINK_SECONDS).contains(&seconds) {
        return Err(DaytonaRefusal::bad(format!(
            "expiresInSeconds must be 1 to {MAX_LINK_SECONDS}"
        )));
    }
    let until = app.now().at.as_second() + i64::from(seconds);
    let token = app.keys.port(sandbox.id(), number, until);
    let token = token.ok_or_else(|| DaytonaRefusal::bad("the id of the sandbox is not a UUID"))?;
    Ok(axum::Json(json!({
        "sandboxId": sandbox.id(),
        "port": number,
        "url": port_url(&app, number, &token)?,
        "token": token,
    })))
}

/// Revokes a link to a port.
pub(super) async fn expire_preview(
    State(app): State<Adapter>,
    Path((name, number, token)): Path<(String, u16, String)>,
) -> Result<StatusCode, DaytonaRefusal> {
    let sandbox = find(&app, &name).await?;
    let now = app.now().at.as_second();
    if app.keys.opens_port(&token, number, now).as_ref() != Some(sandbox.id()) {
        return Err(DaytonaRefusal::missing("the link to this port does not exist or has expired"));
    }
    let mut is_full = false;
    app.sandboxes
        .change(sandbox.id(), |sandbox| {
            // Expired links need no record.
            sandbox.extra.retain(|key, port| {
                let revoked = key.strip_prefix(REVOKED_PREFIX);
                let port = port.parse().unwrap_or_default();
                revoked.is_none_or(|token| app.keys.opens_port(token, port, now).is_some())
            });
            is_full = sandbox.extra.keys().filter(|key| key.starts_with(REVOKED_PREFIX)).count()
                >= MAX_REVOKED_LINKS;
            if !is_full {
                sandbox.extra.insert(format!("{REVOKED_PREFIX}{token}"), number.to_string());
            }
        })
        .await?;
    if is_full {
        let message =
            format!("the sandbox has {MAX_REVOKED_LINKS} revoked links that have not expired yet");
        return Err(DaytonaRefusal::new(StatusCode::TOO_MANY_REQUESTS, message));
    }
    Ok(StatusCode::OK)
}

/// Whether a link to a port was revoked.
pub fn is_revoked(sandbox: &SandboxRecord, token: &str) -> bool {
    sandbox.row.extra.contains_key(&format!("{REVOKED_PREFIX}{token}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_matches_the_one_of_the_clients() {
        let text = signed_text(&Method::GET, "/home/daytona/a b.txt", "1800000000");
        assert_eq!(text, "v1:files:GET:/home/daytona/a b.txt:1800000000");
        // The HMAC-SHA-256 of the text in URL-safe base64 without padding.
        assert_eq!(signature("key", &text), "v1_cBYGw1_6JFe-iYIUTT4FppFY_iBCOrcRhA5tT3YZQ1A");
    }

    #[test]
    fn links_open_only_files() {
        let check = |path: &str, expected: Option<Method>| {
            assert_eq!(link_target(path).map(|(_, method)| method), expected, "{path}");
        };
        check("/daytona/toolbox/x/files/download", Some(Method::GET));
        check("/daytona/toolbox/x/files/upload-v2", Some(Method::POST));
        for path in
            ["/daytona/toolbox/x/files", "/daytona/toolbox/x/process/execute", "/files/download"]
        {
            check(path, None);
        }
    }
}
