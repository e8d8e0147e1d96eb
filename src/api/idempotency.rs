//! `Idempotency-Key`: the same request sent again gets the first answer.
//!
//! The first request with a key runs in a task of its own, so that its answer is kept even if the
//! client went away. One that comes meanwhile waits for it. Refusals that say nothing was done (5xx,
//! 429) are not kept: the next attempt runs again.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::Response,
};
use http_body_util::BodyExt;
use tokio::sync::watch;

use super::{
    App,
    error::{Code, Problem},
    extract::BodyLimits,
};

/// Bytes of all answers kept together.
const KEPT_BYTES: usize = 64 << 20;

/// The hash of a key.
type Slot = [u8; 32];
/// The hash of a whole request.
type Fingerprint = [u8; 32];

/// An answer that can be given again.
#[derive(Debug, Clone)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

struct Kept {
    fingerprint: Fingerprint,
    at: Instant,
    answer: Answer,
}

#[derive(Default)]
struct Ledger {
    kept: HashMap<Slot, Kept>,
    order: VecDeque<Slot>,
    bytes: usize,
    running: HashMap<Slot, (Fingerprint, watch::Receiver<()>)>,
}

/// Answers that were given, and requests being answered, by key.
#[derive(Clone)]
pub(super) struct Answers {
    ledger: Arc<Mutex<Ledger>>,
    bound: usize,
    time: Duration,
}

enum Claim {
    Mine(Running),
    Given(Answer),
    Wait(watch::Receiver<()>),
}

/// Held by the request that runs; when it is dropped those that wait look again.
struct Running {
    answers: Answers,
    slot: Slot,
    fingerprint: Fingerprint,
    _done: watch::Sender<()>,
}

impl Answers {
    pub(super) fn new(bound: usize, time: Duration) -> Answers {
        Answers { ledger: Arc::default(), bound, time }
    }

    fn claim(&self, slot: Slot, fingerprint: Fingerprint, now: Instant) -> Result<Claim, Problem> {
        let reused = || {
            let detail = "this Idempotency-Key belongs to a request with another target or body";
            Err(Problem::new(Code::KeyReused, detail))
        };
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.forget(self.bound, KEPT_BYTES, |kept| now.duration_since(kept.at) < self.time);
        if let Some(kept) = ledger.kept.get(&slot) {
            if kept.fingerprint != fingerprint {
                return reused();
            }
            return Ok(Claim::Given(kept.answer.clone()));
        }
        if let Some((running, done)) = ledger.running.get(&slot) {
            if *running != fingerprint {
                return reused();
            }
            return Ok(Claim::Wait(done.clone()));
        }
        let (sender, receiver) = watch::channel(());
        ledger.running.insert(slot, (fingerprint, receiver));
        Ok(Claim::Mine(Running { answers: self.clone(), slot, fingerprint, _done: sender }))
    }
}

impl Ledger {
    /// Drops the oldest answers until the rest fits and is young enough.
    fn forget(&mut self, bound: usize, bytes: usize, young: impl Fn(&Kept) -> bool) {
        while let Some(slot) = self.order.front() {
            let Some(kept) = self.kept.get(slot) else {
                self.order.pop_front();
                continue;
            };
            if self.order.len() <= bound && self.bytes <= bytes && young(kept) {
                break;
            }
            self.bytes -= kept.answer.body.len();
            self.kept.remove(slot);
            self.order.pop_front();
        }
    }
}

impl Running {
    fn keep(&self, answer: Answer, now: Instant) {
        let mut ledger = self.answers.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.bytes += answer.body.len();
        ledger.order.push_back(self.slot);
        ledger.kept.insert(self.slot, Kept { fingerprint: self.fingerprint, at: now, answer });
        ledger.forget(self.answers.bound, KEPT_BYTES, |_| true);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut ledger = self.answers.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.running.remove(&self.slot);
    }
}

/// Answers a request that carries a key.
pub(super) async fn once(app: &App, request: Request, next: Next) -> Result<Response, Problem> {
    let key = key(request.headers())?;
    let (parts, body) = request.into_parts();
    let limits = *parts.extensions.get::<BodyLimits>().expect("the guard sets the limits");
    let body = limits.read(body).await?;
    let slot = *blake3::hash(key.as_bytes()).as_bytes();
    let fingerprint = fingerprint(&parts, &body);
    loop {
        match app.answers.claim(slot, fingerprint, Instant::now())? {
            Claim::Given(answer) => return Ok(answer.into()),
            Claim::Wait(mut done) => {
                // An error says the sender is gone, which is what is waited for.
                let _ = done.changed().await;
            }
            Claim::Mine(running) => {
                let request = Request::from_parts(parts, Body::from(body));
                let task = app.tasks.spawn(async move { answer(running, request, next).await });
                return match task.await {
                    Ok(answered) => answered,
                    Err(error) => Err(Problem::internal("cannot answer a keyed request", &error)),
                };
            }
        }
    }
}

async fn answer(running: Running, request: Request, next: Next) -> Result<Response, Problem> {
    let response = next.run(request).await;
    let kind = response.headers().get(header::CONTENT_TYPE);
    let streams = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    if streams || !worth_keeping(response.status()) {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let body = body.collect().await;
    let body = body.map_err(|error| Problem::internal("cannot read our own answer", &error))?;
    let answer = Answer { status: parts.status, headers: parts.headers, body: body.to_bytes() };
    running.keep(answer.clone(), Instant::now());
    Ok(answer.into())
}

fn worth_keeping(status: StatusCode) -> bool {
    !status.is_server_error()
        && !matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

impl From<Answer> for Response {
    fn from(answer: Answer) -> Response {
        let mut response = Response::new(Body::from(answer.body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        response
    }
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
    let kind = parts.headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    for part in [parts.method.as_str().as_bytes(), target.as_bytes(), kind, body] {
        // The length first, so that no two lists of parts run together alike.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &'static str) -> Answer {
        let body = Bytes::from_static(text.as_bytes());
        Answer { status: StatusCode::CREATED, headers: HeaderMap::new(), body }
    }

    fn run(answers: &Answers, slot: u8, now: Instant) -> Running {
        match answers.claim([slot; 32], [0; 32], now) {
            Ok(Claim::Mine(running)) => running,
            _ => panic!("the key should be free"),
        }
    }

    #[test]
    fn an_answer_is_given_again_for_a_day_and_then_forgotten() {
        let (answers, now) = (Answers::new(10, Duration::from_secs(60)), Instant::now());
        let running = run(&answers, 1, now);
        assert!(matches!(answers.claim([1; 32], [0; 32], now), Ok(Claim::Wait(_))));
        assert!(answers.claim([1; 32], [9; 32], now).is_err());
        running.keep(answer("a"), now);
        drop(running);
        let again = answers.claim([1; 32], [0; 32], now + Duration::from_secs(59));
        assert!(matches!(again, Ok(Claim::Given(given)) if given.body == "a"));
        assert!(answers.claim([1; 32], [9; 32], now).is_err());
        run(&answers, 1, now + Duration::from_secs(60));
    }

    #[test]
    fn the_oldest_answer_goes_first() {
        let (answers, now) = (Answers::new(2, Duration::from_secs(60)), Instant::now());
        for slot in 1..=3 {
            run(&answers, slot, now).keep(answer("x"), now);
        }
        run(&answers, 1, now);
        assert!(matches!(answers.claim([2; 32], [0; 32], now), Ok(Claim::Given(_))));
        assert_eq!(answers.ledger.lock().unwrap().bytes, 2);
    }
}
