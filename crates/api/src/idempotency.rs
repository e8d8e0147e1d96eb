//! `Idempotency-Key`: the same request sent again gets the first answer.
//!
//! A key belongs to its caller, and to the request it came with: method, target, sandbox and body. Of a
//! caller that proved nothing no key is kept.
//!
//! The first request with a key is written down, runs in a task of its own (so that its answer is
//! kept even if the client goes away) and its answer is written down. One that comes meanwhile
//! waits. A refusal that says nothing was done (5xx, 429) frees the key again. If the server died
//! in between, the next attempt is told so and nothing is done twice; a handler that can go on from
//! what was begun asks [`Keyed`] for it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::Response,
};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::{
    door::Addressee,
    error::{Code, Problem},
    extract::BodyLimits,
};
use model::Timestamp;
use store::{Claim, Store, StoreError, StoredResponse};

/// Largest answer that is kept. What gives larger ones keeps a receipt of its own.
const KEPT_BYTES: usize = 1 << 20;

/// The hash of a whole request.
type Fingerprint = [u8; 32];

/// The request that has a key, and its end.
type Taken = (Fingerprint, watch::Receiver<()>);

/// Requests being answered, by key.
#[derive(Clone, Default)]
pub(super) struct Answers {
    running: Arc<Mutex<HashMap<String, Taken>>>,
}

enum KeyClaim {
    Mine(InFlight),
    Wait(watch::Receiver<()>),
}

/// Held by the request that runs; when it is dropped those that wait look again.
struct InFlight {
    answers: Answers,
    key: String,
    _done: watch::Sender<()>,
}

impl Answers {
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
        Ok(KeyClaim::Mine(InFlight { answers: self.clone(), key: key.to_owned(), _done: sender }))
    }

    /// Answers a request that carries a key.
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
        let fingerprint = fingerprint(&parts, &body);
        let running = loop {
            match self.claim(&key, fingerprint)? {
                KeyClaim::Mine(running) => break running,
                KeyClaim::Wait(mut done) => {
                    // An error says the sender is gone, which is what is waited for.
                    let _ = done.changed().await;
                }
            }
        };
        let begun = match store.claim_key(&key, fingerprint, Timestamp::now()).await? {
            Claim::Fresh => None,
            Claim::Answered(stored) => return Ok(response(stored)),
            Claim::OtherRequest => return Err(reused()),
            Claim::Unfinished { subject: Some(subject) } => Some(subject),
            // A command is named before anything runs: nothing has.
            Claim::Unfinished { subject: None } if parts.uri.path().ends_with("/exec") => None,
            Claim::Unfinished { subject: None } => {
                return Err(Problem::new(
                    Code::OutcomeUnknown,
                    "the server stopped while it answered the first request; look before asking again",
                ));
            }
        };
        let named = Arc::new(AtomicBool::new(begun.is_some()));
        parts.extensions.insert(Keyed { key, begun, named: named.clone() });
        let request = Request::from_parts(parts, Body::from(body));
        let store = store.clone();
        let task = tasks.spawn(async move { answer(running, &named, &store, request, next).await });
        match task.await {
            Ok(answered) => answered,
            Err(error) => Err(Problem::internal("cannot answer a request with a key", &error)),
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut running = self.answers.running.lock();
        running.remove(&self.key);
    }
}

fn reused() -> Problem {
    let detail = "this Idempotency-Key belongs to a request with another target or body";
    Problem::new(Code::KeyReused, detail)
}

/// In the extensions of a request with a key. What a handler makes it names here first; if the
/// server dies, the next attempt finds the name.
#[derive(Debug, Clone)]
pub struct Keyed {
    key: String,
    begun: Option<String>,
    named: Arc<AtomicBool>,
}

impl Keyed {
    /// What an earlier attempt was about to make, if there was one and it was cut off.
    pub fn begun(&self) -> Option<&str> {
        self.begun.as_deref()
    }

    /// Writes down what this request is about to make.
    pub async fn name(&self, store: &Store, subject: &str) -> Result<(), StoreError> {
        store.name_key(&self.key, subject).await?;
        self.named.store(true, Ordering::Release);
        Ok(())
    }
}

/// Whose keys are meant. The keys of one caller say nothing about those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope<'a> {
    Owner,
    /// The holder of a key that opens one thing, by its name.
    Holder(&'a str),
}

impl Scope<'_> {
    /// The key under which the store and the running requests know a client's key.
    fn key(self, given: String) -> String {
        match self {
            Scope::Owner => given,
            Scope::Holder(name) => store::scoped_key(name, &given),
        }
    }
}

/// In the extensions of an answer that holds a secret: it is never written down.
#[derive(Debug, Clone, Copy)]
pub struct NotStored;

async fn answer(
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
        // Its handler has named what it made; a second attempt is led there.
        return Ok(response);
    }
    if nothing_done(response.status()) {
        if !named.load(Ordering::Acquire) {
            store.forget_key(&running.key).await?;
        }
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let body = body.collect().await;
    let body = body.map_err(|error| Problem::internal("cannot read our own answer", &error))?;
    let body = body.to_bytes();
    if body.len() <= KEPT_BYTES {
        let stored = stored(parts.status, &parts.headers, &body);
        store.answer_key(&running.key, stored).await?;
    }
    Ok(Response::from_parts(parts, Body::from(body)))
}

fn nothing_done(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

fn stored(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> StoredResponse {
    // A cookie is a secret, and no answer that sets one needs to be repeated.
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
        return Err(bad("there must be one"));
    };
    let key = key.to_str().map_err(|_| bad("must be visible ASCII"))?;
    if key.is_empty() || key.len() > 255 {
        return Err(bad("must have 1 to 255 characters"));
    }
    Ok(key.to_owned())
}

fn fingerprint(parts: &http::request::Parts, body: &[u8]) -> Fingerprint {
    let mut hasher = blake3::Hasher::new();
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    // Host and headers name a sandbox, too, in other APIs.
    let addressee = parts.extensions.get::<Addressee>().map_or("", |it| it.0.as_str());
    for part in [parts.method.as_str().as_bytes(), target.as_bytes(), addressee.as_bytes(), body] {
        // The length first, so that no two lists of parts run together alike.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_second_waits_for_the_first_and_looks_again() {
        let answers = Answers::default();
        let Ok(KeyClaim::Mine(first)) = answers.claim("k", [0; 32]) else { panic!("free") };
        let Ok(KeyClaim::Wait(mut done)) = answers.claim("k", [0; 32]) else { panic!("taken") };
        assert!(matches!(answers.claim("k", [1; 32]), Err(problem) if problem == reused()));
        assert!(matches!(answers.claim("l", [1; 32]), Ok(KeyClaim::Mine(_))));
        drop(first);
        assert!(done.changed().await.is_err());
        assert!(matches!(answers.claim("k", [0; 32]), Ok(KeyClaim::Mine(_))));
    }
}
