//! Extractors for bodies, queries and path parameters, with errors that name the field.
//!
//! axum's own extractors respond in plain text; these respond with a [`Problem`]. Request types derive `serde(deny_unknown_fields)`.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, FromRequestParts, Request, path::ErrorKind, rejection::PathRejection},
    http::{HeaderMap, header, request::Parts},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use super::{
    error::{Code, Problem},
    slow_body::is_too_slow,
};

/// A required JSON body.
#[derive(Debug, Clone, Copy)]
pub struct Json<T>(pub T);

/// An optional JSON body; the default if it is empty.
#[derive(Debug, Clone, Copy)]
pub struct OptionalJson<T>(pub T);

/// A body of raw bytes.
#[derive(Debug, Clone)]
pub struct RawBody(pub Bytes);

/// Query parameters; unknown ones are refused.
#[derive(Debug, Clone, Copy)]
pub struct Query<T>(pub T);

/// The parameters of a path.
#[derive(Debug, Clone, Copy)]
pub struct Path<T>(pub T);

/// The limits of a body. The guard sets them as an extension of every request.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// Maximum size.
    pub bytes: usize,
    /// Maximum time without data.
    pub time: Duration,
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        must_be_json(request.headers())?;
        Ok(Json(parse(&read(request).await?)?))
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let checked = must_be_json(request.headers());
        let body = read(request).await?;
        if body.is_empty() {
            return Ok(OptionalJson(T::default()));
        }
        checked?;
        Ok(OptionalJson(parse(&body)?))
    }
}

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        Ok(RawBody(read(request).await?))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parse_query(parts.uri.query().unwrap_or_default()).map(Query)
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Path(value)),
            Err(PathRejection::FailedToDeserializePathParams(refused)) => {
                Err(bad_path(refused.into_kind()))
            }
            Err(other) => Err(Problem::internal("cannot read the path parameters", &other)),
        }
    }
}

async fn read(request: Request) -> Result<Bytes, Problem> {
    let limits = *request.extensions().get::<BodyLimits>().expect("the guard sets the limits");
    limits.read(request.into_body()).await
}

impl BodyLimits {
    /// Reads a whole body.
    pub async fn read(self, body: Body) -> Result<Bytes, Problem> {
        read_within(self, body).await
    }
}

async fn read_within(limits: BodyLimits, body: Body) -> Result<Bytes, Problem> {
    // The guard enforces the deadlines.
    match Limited::new(body, limits.bytes).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if is_length_limit(error.as_ref()) => Err(too_large(limits.bytes)),
        Err(error) if is_too_slow(error.as_ref()) => Err(too_slow(error.as_ref())),
        // The client disconnected or broke the framing; it may never receive this.
        Err(error) => {
            Err(Problem::new(Code::InvalidRequest, format!("cannot read the body: {error}")))
        }
    }
}

/// The problem of a body that arrives too slowly.
pub(super) fn too_slow(error: &(dyn std::error::Error + 'static)) -> Problem {
    Problem::new(Code::BodyTimeout, error.to_string())
}

fn is_length_limit(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The problem of a body that exceeds the limit.
pub(super) fn too_large(limit: usize) -> Problem {
    Problem::new(Code::BodyTooLarge, format!("the body must have at most {limit} bytes"))
}

fn must_be_json(headers: &HeaderMap) -> Result<(), Problem> {
    let value = headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?"));
    let mut parts = value.unwrap_or("none").split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let unsupported = |detail: String| Err(Problem::new(Code::UnsupportedMediaType, detail));
    if !kind.eq_ignore_ascii_case("application/json") {
        return unsupported(format!("expected content-type application/json, got {kind:?}"));
    }
    let mut charsets = parts
        .filter_map(|part| part.split_once('='))
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))
        .map(|(_, value)| value.trim().trim_matches('"'));
    let other =
        |charset: &&str| !["utf-8", "utf8"].iter().any(|it| charset.eq_ignore_ascii_case(it));
    match charsets.find(other) {
        None => Ok(()),
        Some(charset) => unsupported(format!("JSON is UTF-8; got charset {charset:?}")),
    }
}

/// Parses a JSON body; errors carry the JSON pointer of the invalid field.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // serde accepts an array for a struct, field by field; every body of this API is an object.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(Problem::field(Code::InvalidBody, "", "expected an object"));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let pointer = pointer(error.path());
        let error = error.into_inner();
        if error.is_data() {
            field_problem(Code::InvalidBody, &pointer, &without_position(&error))
        } else {
            Problem::new(Code::InvalidJson, error.to_string())
        }
    })?;
    json.end().map_err(|error| Problem::new(Code::InvalidJson, error.to_string()))?;
    Ok(value)
}

fn parse_query<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let pairs = serde_urlencoded::Deserializer::new(form_urlencoded::parse(query.as_bytes()));
    serde_path_to_error::deserialize(pairs).map_err(|error| {
        let pointer = pointer(error.path());
        field_problem(Code::InvalidQuery, &pointer, &error.into_inner().to_string())
    })
}

fn bad_path(kind: ErrorKind) -> Problem {
    match kind {
        ErrorKind::ParseErrorAtKey { key, value, expected_type } => {
            let detail = format!("{value:?} is not a valid {expected_type}");
            Problem::field(Code::InvalidPath, format!("/{key}"), detail)
        }
        ErrorKind::DeserializeError { key, message, .. } => {
            Problem::field(Code::InvalidPath, format!("/{key}"), message)
        }
        ErrorKind::InvalidUtf8InPathParam { key } => {
            Problem::field(Code::InvalidPath, format!("/{key}"), "not valid UTF-8")
        }
        other => Problem::new(Code::InvalidPath, other.to_string()),
    }
}

/// Adds the name of the field where serde only gives the path of its parent.
fn field_problem(code: Code, pointer: &str, message: &str) -> Problem {
    let quoted = |prefix: &str| {
        let rest = message.strip_prefix(prefix)?;
        Some(rest.split_once('`')?.0)
    };
    if let Some(field) = quoted("unknown field `") {
        let last = format!("/{}", escape(field));
        let pointer =
            if pointer.ends_with(&last) { pointer.to_owned() } else { format!("{pointer}{last}") };
        return Problem::field(code, pointer, message);
    }
    if let Some(field) = quoted("missing field `").or_else(|| quoted("duplicate field `")) {
        return Problem::field(code, format!("{pointer}/{}", escape(field)), message);
    }
    Problem::field(code, pointer, message)
}

fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let suffix = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&suffix).unwrap_or(&text).to_owned()
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Map { key } => pointer.push_str(&format!("/{}", escape(key))),
            Segment::Enum { variant } => pointer.push_str(&format!("/{}", escape(variant))),
            Segment::Unknown => {}
        }
    }
    pointer
}

fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body {
        #[expect(dead_code)]
        name: String,
        #[expect(dead_code)]
        #[serde(default)]
        cols: u16,
        #[expect(dead_code)]
        #[serde(default)]
        inner: Option<Inner>,
        #[expect(dead_code)]
        #[serde(default)]
        env: BTreeMap<String, String>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[expect(dead_code)]
        list: Vec<u8>,
    }

    fn check(body: &str, expected: &str) {
        let problem = parse::<Body>(body.as_bytes()).unwrap_err();
        assert_eq!(format!("{} {}", problem.code().name(), problem.detail()), expected, "{body}");
    }

    #[test]
    fn an_invalid_field_is_named_by_its_pointer() {
        check("", "invalid_json EOF while parsing a value at line 1 column 0");
        check("{", "invalid_json EOF while parsing an object at line 1 column 1");
        check(r#"{"name":"x"} y"#, "invalid_json trailing characters at line 1 column 14");
        check("{}", "invalid_body /name: missing field `name`");
        check(r#"{"name":"a","name":"b"}"#, "invalid_body /name: duplicate field `name`");
        check(r#"{"name":1}"#, "invalid_body /name: invalid type: integer `1`, expected a string");
        check(
            r#"{"name":"x","cols":70000}"#,
            "invalid_body /cols: invalid value: integer `70000`, expected u16",
        );
        check(
            r#"{"name":"x","inner":{"list":[1,-2]}}"#,
            "invalid_body /inner/list/1: invalid value: integer `-2`, expected u8",
        );
        check(
            r#"{"name":"x","inner":{"list":[],"a/b":1}}"#,
            "invalid_body /inner/a~1b: unknown field `a/b`, expected `list`",
        );
        check(
            r#"{"name":"x","colour":1}"#,
            "invalid_body /colour: unknown field `colour`, expected one of `name`, `cols`, \
             `inner`, `env`",
        );
        check("[\"x\"]", "invalid_body expected an object");
    }

    #[test]
    fn json_is_utf_8() {
        let check = |kind: &'static str, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
            assert_eq!(must_be_json(&headers).is_ok(), expected, "{kind}");
        };
        for kind in ["application/json", "Application/JSON; charset=UTF-8"] {
            check(kind, true);
        }
        check("application/json; q=1; charset=\"utf-8\"", true);
        for kind in ["text/plain", "application/json; charset=utf-7", "application/jsonx"] {
            check(kind, false);
        }
        check("application/json;charset=utf-8;Charset=latin1", false);
    }

    #[test]
    fn an_invalid_parameter_is_named() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Page {
            #[serde(default)]
            limit: Option<u32>,
        }
        assert_eq!(parse_query::<Page>("limit=3").unwrap().limit, Some(3));
        let detail = |query| parse_query::<Page>(query).unwrap_err().detail().to_owned();
        assert_eq!(detail("limit=x"), "/limit: invalid digit found in string");
        assert_eq!(detail("colour=x"), "/colour: unknown field `colour`, expected `limit`");
    }
}
