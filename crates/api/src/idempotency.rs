//! `Idempotency-Key`: a repeated request gets the response of the first one.
//!
//! A key belongs to its caller and to one request: method, target, sandbox and body. Keys of unauthenticated
//! callers are ignored.
//!
//! The first request with a key is recorded and runs in a task of its own, so that its response is recorded
//! even if the client disconnects. A repetition waits for it. A response that implies that nothing was done
//! (5xx, 429, a refusal of MCP) releases the key. If the server was killed in between, a repetition gets an error and nothing
//! is done twice; a handler that can continue the first attempt finds it in [`Keyed`].

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header},
    middleware::Next,
    response::Response,
};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::{
    door::Addressee,
    error::{Code, Problem},
    extract::BodyLimits,
};
use model::Timestamp;
use store::{Claim, Store, StoreError, StoredResponse};

/// Largest response that is recorded.
const MAX_STORED_RESPONSE_BYTES: usize = 1 << 20;

/// The hash of a request: method, target, sandbox and body.
type Fingerprint = [u8; 32];

/// The request that runs with a key, and a channel that closes when it ends.
type Running = (Fingerprint, watch::Receiver<()>);

/// The running requests, by key.
#[derive(Clone, Default)]
pub(super) struct KeyedRequests {
    running: Arc<Mutex<HashMap<String, Running>>>,
}

enum KeyClaim {
    Mine(InFlight),
    Wait(watch::Receiver<()>),
}

/// Held by the running request; dropping it wakes the repetitions.
struct InFlight {
    requests: KeyedRequests,
    key: String,
    _done: watch::Sender<()>,
}

impl KeyedRequests {
    fn claim(&self, key: &str, fingerprint: Fingerprint) -> Result<KeyClaim, Problem> {
        let mut running = self.running.lock();
        if let Some((other, done)) = running.get(key) {
            return if *other == fingerprint {
                Ok(KeyClaim::Wait(done.clone()))
            } else {
                Err(reused())
            };
        }
        let (sender, receiver) = watch::channel(());
        running.insert(key.to_owned(), (fingerprint, receiver));
        Ok(KeyClaim::Mine(InFlight { requests: self.clone(), key: key.to_owned(), _done: sender }))
    }

    /// Handles a request with a key.
    pub(super) async fn once(
        &self,
        (store, tasks): (&Store, &TaskTracker),
        scope: Scope<'_>,
        request: Request,
        next: Next,
    ) -> Result<Response, Problem> {
        let key = scope.key(key(request.headers())?);
        let (mut parts, body) = request.into_parts();
        let limits = *parts.extensions.get::<BodyLimits>().expect("the guard sets the limits");
        let body = limits.read(body).await?;
        let fingerprint = fingerprint(&parts, &identifying(&parts.uri, &body));
        let running = loop {
            match self.claim(&key, fingerprint)? {
                KeyClaim::Mine(running) => break running,
                KeyClaim::Wait(mut done) => {
                    // Always an error: the first request ended and dropped the sender.
                    let _ = done.changed().await;
                }
            }
        };
        let begun = match store.claim_key(&key, fingerprint, Timestamp::now()).await? {
            Claim::Fresh => None,
            Claim::Answered(stored) => return Ok(response(stored)),
            Claim::OtherRequest => return Err(reused()),
            Claim::Unfinished { subject: Some(subject) } => Some(subject),
            // The id of a command is recorded before it starts, so nothing has run.
            Claim::Unfinished { subject: None } if parts.uri.path().ends_with("/exec") => None,
            Claim::Unfinished { subject: None } => {
                return Err(Problem::new(
                    Code::OutcomeUnknown,
                    "the response to the first request is not available; check its outcome before you repeat it",
                ));
            }
        };
        let named = Arc::new(AtomicBool::new(begun.is_some()));
        parts.extensions.insert(Keyed { key, begun, named: named.clone() });
        let request = Request::from_parts(parts, Body::from(body));
        let store = store.clone();
        let work = async move { respond(running, &named, &store, request, next).await };
        let task = tasks.spawn(work.in_current_span());
        match task.await {
            Ok(answered) => answered,
            Err(error) => {
                Err(Problem::internal("cannot handle a request with an idempotency key", &error))
            }
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut running = self.requests.running.lock();
        running.remove(&self.key);
    }
}

fn reused() -> Problem {
    let detail = "this Idempotency-Key belongs to a request with another target or body";
    Problem::new(Code::KeyReused, detail)
}

/// An extension of a request with a key. A handler records the id of what it is about to create; if the server
/// is killed, the next attempt finds it.
#[derive(Debug, Clone)]
pub struct Keyed {
    key: String,
    begun: Option<String>,
    named: Arc<AtomicBool>,
}

impl Keyed {
    /// Returns what an interrupted earlier attempt was about to create.
    pub fn begun(&self) -> Option<&str> {
        self.begun.as_deref()
    }

    /// Records what this request is about to create.
    pub async fn name(&self, store: &Store, subject: &str) -> Result<(), StoreError> {
        store.name_key(&self.key, subject).await?;
        self.named.store(true, Ordering::Release);
        Ok(())
    }
}

/// The caller that a key belongs to. Equal keys of two callers are independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope<'a> {
    Owner,
    /// The holder of a credential for one resource, by its name.
    Holder(&'a str),
}

impl Scope<'_> {
    /// Returns the key within this scope, as it is stored.
    fn key(self, given: String) -> String {
        match self {
            Scope::Owner => given,
            Scope::Holder(name) => store::scoped_key(name, &given),
        }
    }
}

/// An extension of a response that contains a secret: it is not recorded.
#[derive(Debug, Clone, Copy)]
pub struct NotStored;

/// An extension of a response that implies that nothing was done: it releases the key.
#[derive(Debug, Clone, Copy)]
struct NothingDone;

/// The middleware of an API that refuses a request before it does anything.
pub async fn release_if_refused(mut response: Response) -> Response {
    if !response.status().is_success() {
        response.extensions_mut().insert(NothingDone);
    }
    response
}

async fn respond(
    running: InFlight,
    named: &AtomicBool,
    store: &Store,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let response = next.run(request).await;
    let kind = response.headers().get(header::CONTENT_TYPE);
    let streams = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    if streams || response.extensions().get::<NotStored>().is_some() {
        // The handler has recorded what it created; a repetition finds it.
        return Ok(response);
    }
    let nothing_done = response.extensions().get::<NothingDone>().is_some();
    if nothing_done || releases_key(response.status()) {
        if !named.load(Ordering::Acquire) {
            store.forget_key(&running.key).await?;
        }
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let body = body.collect().await;
    let body = body.map_err(|error| Problem::internal("cannot read the response", &error))?;
    let body = body.to_bytes();
    if body.len() <= MAX_STORED_RESPONSE_BYTES {
        let stored = stored(parts.status, &parts.headers, &body);
        store.answer_key(&running.key, stored).await?;
    }
    Ok(Response::from_parts(parts, Body::from(body)))
}

fn releases_key(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

fn stored(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> StoredResponse {
    // A cookie is a secret, and a response that sets one need not be repeated.
    let headers = headers
        .iter()
        .filter(|(name, _)| *name != header::SET_COOKIE)
        .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
        .collect();
    StoredResponse { status: status.as_u16(), headers, body: body.to_vec() }
}

fn response(stored: StoredResponse) -> Response {
    let mut response = Response::new(Body::from(stored.body));
    *response.status_mut() = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK);
    for (name, value) in stored.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

fn key(headers: &HeaderMap) -> Result<String, Problem> {
    let bad = |detail| Problem::field(Code::InvalidHeader, "/idempotency-key", detail);
    let mut keys = headers.get_all("idempotency-key").iter();
    let (Some(key), None) = (keys.next(), keys.next()) else {
        return Err(bad("must be given once"));
    };
    let key = key.to_str().map_err(|_| bad("must be visible ASCII"))?;
    if key.is_empty() || key.len() > 255 {
        return Err(bad("must have 1 to 255 characters"));
    }
    Ok(key.to_owned())
}

/// The part of a body that identifies the request. A hash of a short secret could be inverted by trying, so the secret
/// of a hand-off is left out.
fn identifying<'a>(uri: &Uri, body: &'a [u8]) -> Cow<'a, [u8]> {
    if !(uri.path().starts_with("/api/handoffs/") && uri.path().ends_with("/answer")) {
        return Cow::Borrowed(body);
    }
    let Ok(serde_json::Value::Object(mut answer)) = serde_json::from_slice(body) else {
        // The handler refuses such a body.
        return Cow::Borrowed(&[]);
    };
    if answer.contains_key("secret") {
        answer.insert("secret".to_owned(), serde_json::Value::Null);
    }
    Cow::Owned(serde_json::Value::Object(answer).to_string().into_bytes())
}

fn fingerprint(parts: &http::request::Parts, body: &[u8]) -> Fingerprint {
    let mut hasher = blake3::Hasher::new();
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    // Other APIs name the sandbox in the host or in headers.
    let addressee = parts.extensions.get::<Addressee>().map_or("", |it| it.0.as_str());
    for part in [parts.method.as_str().as_bytes(), target.as_bytes(), addressee.as_bytes(), body] {
        // Length-prefixed, so that different parts never hash alike.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_of_a_hand_off_does_not_identify_its_request() {
        let of = |path: &str, body: &str| {
            let uri: Uri = path.parse().unwrap();
            String::from_utf8(identifying(&uri, body.as_bytes()).into_owned()).unwrap()
        };
        let answer = "/api/handoffs/handoff_1/answer";
        assert_eq!(of(answer, r#"{"secret": "hunter2"}"#), r#"{"secret":null}"#);
        assert_eq!(of(answer, r#"{"text": "x"}"#), r#"{"text":"x"}"#);
        assert_eq!(of(answer, "\"hunter2\""), "");
        assert_eq!(of("/api/threads/t/exec", "{ }"), "{ }");
    }

    #[tokio::test]
    async fn a_repetition_waits_for_the_first_request() {
        let requests = KeyedRequests::default();
        let Ok(KeyClaim::Mine(first)) = requests.claim("k", [0; 32]) else { panic!("free") };
        let Ok(KeyClaim::Wait(mut done)) = requests.claim("k", [0; 32]) else { panic!("taken") };
        assert!(matches!(requests.claim("k", [1; 32]), Err(problem) if problem == reused()));
        assert!(matches!(requests.claim("l", [1; 32]), Ok(KeyClaim::Mine(_))));
        drop(first);
        assert!(done.changed().await.is_err());
        assert!(matches!(requests.claim("k", [0; 32]), Ok(KeyClaim::Mine(_))));
    }
}
