//! The codes of all problems, and the one table that gives each its status and title.

use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

/// What kind of refusal it is. Clients decide by it, so a name never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    InvalidRequest,
    InvalidJson,
    InvalidBody,
    InvalidQuery,
    InvalidPath,
    InvalidHeader,
    Unauthorized,
    HostNotAllowed,
    OriginNotAllowed,
    Forbidden,
    NotFound,
    NoSuchRoute,
    MethodNotAllowed,
    BodyTimeout,
    Conflict,
    Busy,
    VersionConflict,
    LeasePaused,
    NotDriver,
    NotSupported,
    NotRunning,
    OutcomeUnknown,
    InFlight,
    Gone,
    BodyTooLarge,
    RangeNotSatisfiable,
    OutsideRoute,
    NotAFile,
    IsADirectory,
    NotADirectory,
    NotEmpty,
    AlreadyExists,
    QuotaExceeded,
    UnsupportedMediaType,
    KeyReused,
    Unprocessable,
    TooManyTerminals,
    TooManyRequests,
    TooManyFailures,
    Overloaded,
    Stopping,
    StoreUnavailable,
    ProviderUnavailable,
    Unreachable,
    OutOfTerminals,
    OutOfDescriptors,
    DiskFull,
    Internal,
}

impl Code {
    /// The status and the title: the only such table there is.
    pub fn status(self) -> (StatusCode, &'static str) {
        match self {
            Code::InvalidRequest => (StatusCode::BAD_REQUEST, "The request is not valid"),
            Code::InvalidJson => (StatusCode::BAD_REQUEST, "The body is not JSON"),
            Code::InvalidBody => (StatusCode::BAD_REQUEST, "The body is not valid"),
            Code::InvalidQuery => (StatusCode::BAD_REQUEST, "The query is not valid"),
            Code::InvalidPath => (StatusCode::BAD_REQUEST, "The path is not valid"),
            Code::InvalidHeader => (StatusCode::BAD_REQUEST, "A header is not valid"),
            Code::Unauthorized => (StatusCode::UNAUTHORIZED, "A valid token is needed"),
            Code::HostNotAllowed => (StatusCode::FORBIDDEN, "This Host is not served here"),
            Code::OriginNotAllowed => (StatusCode::FORBIDDEN, "This Origin is not allowed"),
            Code::Forbidden => (StatusCode::FORBIDDEN, "Not allowed"),
            Code::NotFound => (StatusCode::NOT_FOUND, "There is no such thing"),
            Code::NoSuchRoute => (StatusCode::NOT_FOUND, "There is no such route"),
            Code::MethodNotAllowed => {
                (StatusCode::METHOD_NOT_ALLOWED, "The route does not know this method")
            }
            Code::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, "The body did not arrive in time"),
            Code::Conflict => (StatusCode::CONFLICT, "The state does not allow it"),
            Code::Busy => (StatusCode::CONFLICT, "The terminal is busy"),
            Code::VersionConflict => (StatusCode::CONFLICT, "It was changed meanwhile"),
            Code::LeasePaused => (StatusCode::CONFLICT, "The lease is paused"),
            Code::NotDriver => (StatusCode::CONFLICT, "Somebody else has the keyboard"),
            Code::NotSupported => (StatusCode::CONFLICT, "The provider cannot do this"),
            Code::NotRunning => (StatusCode::CONFLICT, "It is not running"),
            Code::OutcomeUnknown => {
                (StatusCode::CONFLICT, "The first request with this key was interrupted")
            }
            Code::InFlight => {
                (StatusCode::CONFLICT, "The first request with this key is still being answered")
            }
            Code::Gone => (StatusCode::GONE, "It is no longer kept"),
            Code::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "The body is too large"),
            Code::RangeNotSatisfiable => {
                (StatusCode::RANGE_NOT_SATISFIABLE, "The range begins after the end")
            }
            Code::OutsideRoute => (StatusCode::FORBIDDEN, "The path leads out of its route"),
            Code::NotAFile => (StatusCode::CONFLICT, "It is not a file"),
            Code::IsADirectory => (StatusCode::CONFLICT, "It is a directory"),
            Code::NotADirectory => (StatusCode::CONFLICT, "It is not a directory"),
            Code::NotEmpty => (StatusCode::CONFLICT, "The directory is not empty"),
            Code::AlreadyExists => (StatusCode::CONFLICT, "It exists already"),
            Code::QuotaExceeded => (StatusCode::CONFLICT, "There is no room for more"),
            Code::UnsupportedMediaType => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "This content type is not accepted")
            }
            Code::KeyReused => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "The Idempotency-Key was used with another request",
            ),
            Code::Unprocessable => (StatusCode::UNPROCESSABLE_ENTITY, "It cannot be done"),
            Code::TooManyTerminals => (StatusCode::TOO_MANY_REQUESTS, "Too many terminals"),
            Code::TooManyRequests => (StatusCode::TOO_MANY_REQUESTS, "Too many requests"),
            Code::TooManyFailures => (StatusCode::TOO_MANY_REQUESTS, "Too many failed attempts"),
            Code::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "Too much to do just now"),
            Code::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "The server is stopping"),
            Code::StoreUnavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "The store cannot be written")
            }
            Code::ProviderUnavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "The provider does not answer")
            }
            Code::Unreachable => {
                (StatusCode::SERVICE_UNAVAILABLE, "The host of this lease does not answer")
            }
            Code::OutOfTerminals => {
                (StatusCode::SERVICE_UNAVAILABLE, "The machine has no more terminals")
            }
            Code::OutOfDescriptors => {
                (StatusCode::SERVICE_UNAVAILABLE, "The machine has no more descriptors")
            }
            Code::DiskFull => (StatusCode::SERVICE_UNAVAILABLE, "The disk is full"),
            Code::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "Something went wrong inside"),
        }
    }

    /// The name clients see.
    pub fn name(self) -> String {
        let quoted = serde_json::to_string(&self).expect("a unit variant is a JSON string");
        quoted.trim_matches('"').to_owned()
    }
}
