//! Hand-offs: an agent asks a person, and a person answers.
//!
//! The secret of an answer goes to the engine and nowhere else: no response, error or recorded request has it.

use std::time::Duration;

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{Json, OptionalJson, Path, Query},
    idempotency::Keyed,
    page::{self, List},
    params::{HandoffPath, TerminalPath},
    target::TargetTerminal,
};
use engine::handoff::{HandoffResponse, NewHandoff, SecretText};
use model::{
    Handoff, HandoffAnswer, HandoffId, HandoffKind, HandoffState, HandoffStatus, TerminalId,
    ThreadId, Timestamp,
};
use store::HandoffFilter;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(answer))
        .routes(routes!(decline))
}

/// The id in a path, which may be no id at all. An alias, because the document generator describes every `Path<String>`
/// itself.
type GivenId = String;

/// Longest `wait_ms` that a request may have.
const MAX_WAIT_MS: u64 = 60_000;
/// Default time until a hand-off expires: a day.
const DEFAULT_TIMEOUT_MS: u64 = 24 * 3600 * 1000;
/// Longest time until a hand-off expires: 30 days.
const MAX_TIMEOUT_MS: u64 = 30 * DEFAULT_TIMEOUT_MS;
const MAX_REASON_CHARS: usize = 2000;
const MAX_OPTIONS: usize = 32;
const MAX_OPTION_CHARS: usize = 200;
const MAX_TEXT_BYTES: usize = 64 << 10;
/// A terminal cuts a line at 4096 bytes.
const MAX_SECRET_BYTES: usize = 4000;

/// A request to a person.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"kind": "approval", "reason": "Deploy version 1.4 to production?",
    "options": ["deploy", "deploy and notify"], "timeout_ms": 3_600_000, "wait_ms": 60_000}))]
struct NewHandoffRequest {
    /// `input` (text for the agent), `secret` (typed into the program that reads the terminal) or `approval`.
    #[schema(value_type = String)]
    kind: HandoffKind,
    /// What the person is asked, and why; at most 2000 characters.
    reason: String,
    /// Answers to choose from, for `input` and `approval`; at most 32 of at most 200 characters.
    #[serde(default)]
    options: Vec<String>,
    /// Time until the hand-off expires, in milliseconds; 86400000 (a day) by default, 2592000000 (30 days)
    /// at most.
    timeout_ms: Option<u64>,
    /// Time to wait for the answer, in milliseconds; at most 60000.
    wait_ms: Option<u64>,
}

/// A request of an agent to a person.
#[derive(Debug, Serialize, ToSchema)]
struct HandoffView {
    /// Id of the hand-off.
    handoff_id: String,
    /// Id of the thread.
    thread_id: String,
    /// Id of the terminal.
    terminal_id: String,
    /// `input`, `secret` or `approval`.
    kind: &'static str,
    /// What the person is asked, and why.
    reason: String,
    /// Answers to choose from.
    options: Vec<String>,
    /// `open`, `answered`, `declined` or `expired`.
    status: &'static str,
    /// Answer of the person; absent for a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<HandoffAnswerView>,
    /// Creation time.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// Time at which an open hand-off expires.
    #[schema(value_type = String)]
    expires_at: Timestamp,
    /// Time at which the hand-off was answered, was declined or expired; null while it is open.
    #[schema(value_type = Option<String>)]
    settled_at: Option<Timestamp>,
}

/// The answer of a person, without a secret.
#[derive(Debug, Serialize, ToSchema)]
struct HandoffAnswerView {
    /// Decision about an approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    approve: Option<bool>,
    /// The chosen option.
    #[serde(skip_serializing_if = "Option::is_none")]
    option: Option<String>,
    /// Text of the person.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

impl From<Handoff> for HandoffView {
    fn from(handoff: Handoff) -> HandoffView {
        let (status, expires_at) = (handoff.status().word(), handoff.expires_at());
        let (settled_at, answer) = match handoff.state {
            HandoffState::Open => (None, None),
            HandoffState::Answered { at, answer } => {
                let HandoffAnswer { approve, option, text } = answer;
                (Some(at), Some(HandoffAnswerView { approve, option, text }))
            }
            HandoffState::Declined { at, text } => {
                let answer =
                    |text| HandoffAnswerView { approve: None, option: None, text: Some(text) };
                (Some(at), text.map(answer))
            }
            HandoffState::Expired { at } => (Some(at), None),
        };
        HandoffView {
            handoff_id: handoff.handoff_id.to_string(),
            thread_id: handoff.thread_id.to_string(),
            terminal_id: handoff.terminal_id.to_string(),
            kind: handoff.kind.word(),
            reason: handoff.reason,
            options: handoff.options,
            status,
            answer: answer.filter(|_| handoff.kind != HandoffKind::Secret || status == "declined"),
            created_at: handoff.created.at,
            expires_at,
            settled_at,
        }
    }
}

/// Ask a person for input, a secret or an approval.
///
/// The hand-off stays open until a person answers or declines it, or until it expires. It survives restarts of the
/// server. With `wait_ms` the response is delayed until the hand-off is settled, or until that time has passed.
#[utoipa::path(post, path = "/api/terminals/{id}/handoffs", tag = "handoffs",
    operation_id = "handoffs.create", params(TerminalPath), request_body = NewHandoffRequest,
    responses((status = 201, description = "The hand-off", body = HandoffView)))]
async fn create(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
    keyed: Option<axum::Extension<Keyed>>,
    Json(new): Json<NewHandoffRequest>,
) -> Result<Response, Problem> {
    new.check()?;
    let deadline = deadline(new.wait_ms)?;
    let timeout = Duration::from_millis(new.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS));
    let mut handoff_id = HandoffId::fresh();
    let mut begun = None;
    if let Some(axum::Extension(keyed)) = keyed {
        match keyed.begun().and_then(|id| id.parse().ok()) {
            Some(id) => {
                begun = app.handoffs.get(&id).await?;
                handoff_id = id;
            }
            None => keyed.name(&app.store, handoff_id.as_str()).await?,
        }
    }
    let opened = match begun {
        Some(handoff) => handoff,
        None => {
            let NewHandoffRequest { kind, reason, options, .. } = new;
            let new = NewHandoff { handoff_id, kind, reason, options, timeout };
            app.handoffs.open(&terminal, new).await?
        }
    };
    let handoff = match deadline {
        Some(deadline) => settled(&app, &opened.handoff_id, deadline).await?,
        None => opened,
    };
    Ok((StatusCode::CREATED, axum::Json(HandoffView::from(handoff))).into_response())
}

impl NewHandoffRequest {
    fn check(&self) -> Result<(), Problem> {
        let chars = self.reason.chars().count();
        let is_control = |c: char| c.is_control() && c != '\n' && c != '\t';
        if chars == 0 || chars > MAX_REASON_CHARS || self.reason.chars().any(is_control) {
            let detail =
                format!("must have 1 to {MAX_REASON_CHARS} characters and no control characters");
            return Err(Problem::body("/reason", detail));
        }
        if self.kind == HandoffKind::Secret && !self.options.is_empty() {
            return Err(Problem::body("/options", "a secret has no options"));
        }
        if self.options.len() > MAX_OPTIONS {
            return Err(Problem::body(
                "/options",
                format!("must have at most {MAX_OPTIONS} items"),
            ));
        }
        for (index, option) in self.options.iter().enumerate() {
            let pointer = format!("/options/{index}");
            let chars = option.chars().count();
            if chars == 0 || chars > MAX_OPTION_CHARS || option.chars().any(char::is_control) {
                let detail = format!(
                    "must have 1 to {MAX_OPTION_CHARS} characters and no control characters"
                );
                return Err(Problem::body(pointer, detail));
            }
            if self.options[..index].contains(option) {
                return Err(Problem::body(pointer, "is given twice"));
            }
        }
        match self.timeout_ms {
            Some(0) => Err(Problem::body("/timeout_ms", "must be at least 1")),
            Some(timeout) if timeout > MAX_TIMEOUT_MS => {
                Err(Problem::body("/timeout_ms", format!("must be at most {MAX_TIMEOUT_MS}")))
            }
            Some(_) | None => match self.wait_ms {
                Some(wait) if wait > MAX_WAIT_MS => {
                    Err(Problem::body("/wait_ms", format!("must be at most {MAX_WAIT_MS}")))
                }
                Some(_) | None => Ok(()),
            },
        }
    }
}

/// Returns the end of a wait; `None` if the request does not wait.
fn deadline(wait_ms: Option<u64>) -> Result<Option<Instant>, Problem> {
    match wait_ms.unwrap_or(0) {
        0 => Ok(None),
        wait @ 1..=MAX_WAIT_MS => Ok(Some(Instant::now() + Duration::from_millis(wait))),
        _ => Err(Problem::query("wait_ms", format!("must be at most {MAX_WAIT_MS}"))),
    }
}

/// Returns a hand-off when it is settled, at the deadline, or when the server stops.
async fn settled(app: &App, id: &HandoffId, deadline: Instant) -> Result<Handoff, Problem> {
    let found = tokio::select! {
        found = app.handoffs.wait(id, deadline) => found?,
        () = app.stopping.cancelled() => app.handoffs.get(id).await?,
    };
    found.ok_or_else(|| Problem::missing("hand-off", id))
}

/// Filters and pages the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HandoffsQuery {
    /// Only hand-offs with this status: `open`, `answered`, `declined` or `expired`.
    #[param(value_type = Option<String>)]
    status: Option<HandoffStatus>,
    /// Only hand-offs of this thread.
    #[param(value_type = Option<String>)]
    thread_id: Option<ThreadId>,
    /// Only hand-offs of this terminal.
    terminal_id: Option<String>,
    /// Maximum number of items; 100 by default, 1000 at most.
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List hand-offs, newest first.
#[utoipa::path(get, path = "/api/handoffs", tag = "handoffs",
    operation_id = "handoffs.list", params(HandoffsQuery),
    responses((status = 200, description = "A page of hand-offs", body = List<HandoffView>)))]
async fn list(
    State(app): State<App>,
    Query(query): Query<HandoffsQuery>,
) -> Result<axum::Json<List<HandoffView>>, Problem> {
    let terminal = query.terminal_id.map(|id| id.parse::<TerminalId>()).transpose();
    let terminal = terminal.map_err(|_| Problem::query("terminal_id", "not a terminal id"))?;
    let filter = HandoffFilter { status: query.status, thread: query.thread_id, terminal };
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let page = app.handoffs.list(filter, request).await?;
    Ok(axum::Json(page.map(HandoffView::from).into()))
}

/// How long to wait for the answer.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HandoffWait {
    /// Time to wait until the hand-off is settled, in milliseconds; at most 60000.
    wait_ms: Option<u64>,
}

/// Get a hand-off, or wait for its answer.
#[utoipa::path(get, path = "/api/handoffs/{id}", tag = "handoffs",
    operation_id = "handoffs.get", params(HandoffPath, HandoffWait),
    responses((status = 200, description = "The hand-off", body = HandoffView)))]
async fn show(
    State(app): State<App>,
    Path(name): Path<GivenId>,
    Query(query): Query<HandoffWait>,
) -> Result<axum::Json<HandoffView>, Problem> {
    let id = parsed(&name)?;
    // A deadline that is over returns the hand-off as it is.
    let deadline = deadline(query.wait_ms)?.unwrap_or_else(Instant::now);
    Ok(axum::Json(settled(&app, &id, deadline).await?.into()))
}

/// An answer to a hand-off.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"approve": true, "option": "deploy"}))]
struct AnswerRequest {
    /// Decision about an approval.
    approve: Option<bool>,
    /// One of the options; implies `approve` for an approval.
    option: Option<String>,
    /// Text for the agent, of at most 64 KiB: the answer to an input, or a note to an approval.
    text: Option<String>,
    /// The secret, which is typed into the terminal and followed by a newline; at most 4000 bytes without control
    /// characters. The server keeps it nowhere.
    #[serde(default, deserialize_with = "secret")]
    #[schema(value_type = Option<String>)]
    secret: Option<SecretText>,
}

/// Reads a secret. Errors do not repeat what was given.
fn secret<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SecretText>, D::Error> {
    match serde_json::Value::deserialize(from)? {
        serde_json::Value::Null => Ok(None),
        serde_json::Value::String(text) => Ok(Some(SecretText::new(text))),
        _ => Err(D::Error::custom("must be a string")),
    }
}

impl AnswerRequest {
    fn response(self) -> Result<HandoffResponse, Problem> {
        let AnswerRequest { approve, option, text, secret } = self;
        check_text(text.as_deref())?;
        let Some(secret) = secret else {
            return Ok(HandoffResponse::Answer(HandoffAnswer { approve, option, text }));
        };
        if approve.is_some() || option.is_some() || text.is_some() {
            return Err(Problem::body("/secret", "excludes every other field"));
        }
        let bytes = secret.reveal().len();
        if bytes == 0 || bytes > MAX_SECRET_BYTES || secret.reveal().chars().any(char::is_control) {
            let detail =
                format!("must have 1 to {MAX_SECRET_BYTES} bytes and no control characters");
            return Err(Problem::body("/secret", detail));
        }
        Ok(HandoffResponse::Secret(secret))
    }
}

fn check_text(text: Option<&str>) -> Result<(), Problem> {
    match text {
        Some(text) if text.len() > MAX_TEXT_BYTES => {
            Err(Problem::body("/text", format!("must have at most {MAX_TEXT_BYTES} bytes")))
        }
        Some(_) | None => Ok(()),
    }
}

/// Answer a hand-off.
///
/// A secret is typed into the program that reads the terminal. This is refused with `echo_on` if the terminal would
/// show it, and with `not_waiting` if no program waits for input; the hand-off stays open. With an
/// `Idempotency-Key`, the secret is not part of what identifies the request.
#[utoipa::path(post, path = "/api/handoffs/{id}/answer", tag = "handoffs",
    operation_id = "handoffs.answer", params(HandoffPath), request_body = AnswerRequest,
    responses((status = 200, description = "The answered hand-off", body = HandoffView)))]
async fn answer(
    State(app): State<App>,
    Path(name): Path<GivenId>,
    Json(answer): Json<AnswerRequest>,
) -> Result<axum::Json<HandoffView>, Problem> {
    let id = parsed(&name)?;
    let answered = app.handoffs.answer(&id, answer.response()?).await?;
    app.used(&answered.thread_id).await;
    Ok(axum::Json(answered.into()))
}

/// A refusal to answer.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"text": "Not during business hours."}))]
struct DeclineRequest {
    /// Text for the agent, of at most 64 KiB.
    text: Option<String>,
}

/// Decline a hand-off.
#[utoipa::path(post, path = "/api/handoffs/{id}/decline", tag = "handoffs",
    operation_id = "handoffs.decline", params(HandoffPath), request_body = DeclineRequest,
    responses((status = 200, description = "The declined hand-off", body = HandoffView)))]
async fn decline(
    State(app): State<App>,
    Path(name): Path<GivenId>,
    OptionalJson(declined): OptionalJson<DeclineRequest>,
) -> Result<axum::Json<HandoffView>, Problem> {
    let id = parsed(&name)?;
    check_text(declined.text.as_deref())?;
    Ok(axum::Json(app.handoffs.decline(&id, declined.text).await?.into()))
}

fn parsed(name: &str) -> Result<HandoffId, Problem> {
    name.parse().map_err(|_| Problem::missing("hand-off", name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::parse;

    #[test]
    fn no_error_repeats_a_secret() {
        for body in [
            r#"{"secret": 123456}"#,
            r#"{"secret": ["123456"]}"#,
            r#"{"secret": "12\n3456"}"#,
            r#"{"secret": "123456", "text": "x"}"#,
        ] {
            let problem = match parse::<AnswerRequest>(body.as_bytes()) {
                Ok(answer) => answer.response().unwrap_err(),
                Err(problem) => problem,
            };
            assert!(problem.detail().starts_with("/secret: "), "{problem:?}");
            assert!(!format!("{problem:?}").contains("3456"), "{problem:?}");
        }
        let answer: AnswerRequest = parse(br#"{"secret": "123456"}"#).unwrap();
        assert!(!format!("{answer:?}").contains("123456"));
        assert!(matches!(answer.response(), Ok(HandoffResponse::Secret(_))));
    }
}
