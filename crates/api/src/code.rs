//! The codes of all problems, and the one table that gives each its status and title.

use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

/// The kind of a problem, for programs. The meaning of a code never changes.
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
    NotWaiting,
    EchoOn,
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
    StoreDamaged,
    ProviderUnavailable,
    Unreachable,
    OutOfTerminals,
    OutOfDescriptors,
    OutOfProcesses,
    OutOfMemory,
    OutOfWatches,
    DiskFull,
    PortClosed,
    PortTimeout,
    Internal,
}

impl Code {
    /// Returns the status and the title.
    pub fn status(self) -> (StatusCode, &'static str) {
        match self {
            Code::InvalidRequest => (StatusCode::BAD_REQUEST, "The request is not valid"),
            Code::InvalidJson => (StatusCode::BAD_REQUEST, "The body is not valid JSON"),
            Code::InvalidBody => (StatusCode::BAD_REQUEST, "The body is not valid"),
            Code::InvalidQuery => (StatusCode::BAD_REQUEST, "The query is not valid"),
            Code::InvalidPath => (StatusCode::BAD_REQUEST, "The path is not valid"),
            Code::InvalidHeader => (StatusCode::BAD_REQUEST, "A header is not valid"),
            Code::Unauthorized => (StatusCode::UNAUTHORIZED, "Authentication required"),
            Code::HostNotAllowed => (StatusCode::FORBIDDEN, "Unknown host"),
            Code::OriginNotAllowed => (StatusCode::FORBIDDEN, "Origin not allowed"),
            Code::Forbidden => (StatusCode::FORBIDDEN, "Not allowed"),
            Code::NotFound => (StatusCode::NOT_FOUND, "Not found"),
            Code::NoSuchRoute => (StatusCode::NOT_FOUND, "Route not found"),
            Code::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "Method not allowed"),
            Code::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, "The body did not arrive in time"),
            Code::Conflict => (StatusCode::CONFLICT, "Conflict with the current state"),
            Code::Busy => (StatusCode::CONFLICT, "The terminal is busy"),
            Code::VersionConflict => (StatusCode::CONFLICT, "Changed concurrently"),
            Code::LeasePaused => (StatusCode::CONFLICT, "The lease is paused"),
            Code::NotDriver => (StatusCode::CONFLICT, "Another client has control of the terminal"),
            Code::NotSupported => (StatusCode::CONFLICT, "Not supported by the provider"),
            Code::NotRunning => (StatusCode::CONFLICT, "Not running"),
            Code::NotWaiting => (StatusCode::CONFLICT, "No program waits for this input"),
            Code::EchoOn => (StatusCode::CONFLICT, "The terminal would show the secret"),
            Code::OutcomeUnknown => {
                (StatusCode::CONFLICT, "The first request with this key was interrupted")
            }
            Code::InFlight => {
                (StatusCode::CONFLICT, "The first request with this key is still in progress")
            }
            Code::Gone => (StatusCode::GONE, "No longer available"),
            Code::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "The body is too large"),
            Code::RangeNotSatisfiable => {
                (StatusCode::RANGE_NOT_SATISFIABLE, "The range starts after the end of the file")
            }
            Code::OutsideRoute => (StatusCode::FORBIDDEN, "The path leaves its route"),
            Code::NotAFile => (StatusCode::CONFLICT, "Not a file"),
            Code::IsADirectory => (StatusCode::CONFLICT, "Is a directory"),
            Code::NotADirectory => (StatusCode::CONFLICT, "Not a directory"),
            Code::NotEmpty => (StatusCode::CONFLICT, "The directory is not empty"),
            Code::AlreadyExists => (StatusCode::CONFLICT, "Already exists"),
            Code::QuotaExceeded => (StatusCode::CONFLICT, "Quota exceeded"),
            Code::UnsupportedMediaType => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "Unsupported content type")
            }
            Code::KeyReused => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "The Idempotency-Key was used with another request",
            ),
            Code::Unprocessable => {
                (StatusCode::UNPROCESSABLE_ENTITY, "The request cannot be processed")
            }
            Code::TooManyTerminals => (StatusCode::TOO_MANY_REQUESTS, "Too many terminals"),
            Code::TooManyRequests => (StatusCode::TOO_MANY_REQUESTS, "Too many requests"),
            Code::TooManyFailures => (StatusCode::TOO_MANY_REQUESTS, "Too many failed attempts"),
            Code::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "The server is overloaded"),
            Code::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "The server is stopping"),
            Code::StoreUnavailable => (StatusCode::SERVICE_UNAVAILABLE, "The store is unavailable"),
            Code::StoreDamaged => (StatusCode::INTERNAL_SERVER_ERROR, "The store is damaged"),
            Code::ProviderUnavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "The provider is unavailable")
            }
            Code::Unreachable => {
                (StatusCode::SERVICE_UNAVAILABLE, "The host of the lease is unreachable")
            }
            Code::OutOfTerminals => {
                (StatusCode::SERVICE_UNAVAILABLE, "The machine is out of terminals")
            }
            Code::OutOfDescriptors => {
                (StatusCode::SERVICE_UNAVAILABLE, "The machine is out of file descriptors")
            }
            Code::OutOfProcesses => {
                (StatusCode::SERVICE_UNAVAILABLE, "The machine is out of processes")
            }
            Code::OutOfMemory => (StatusCode::SERVICE_UNAVAILABLE, "The machine is out of memory"),
            Code::OutOfWatches => {
                (StatusCode::SERVICE_UNAVAILABLE, "The machine is out of epoll watches")
            }
            Code::DiskFull => (StatusCode::SERVICE_UNAVAILABLE, "The disk is full"),
            Code::PortClosed => (StatusCode::BAD_GATEWAY, "No program responds on the port"),
            Code::PortTimeout => {
                (StatusCode::GATEWAY_TIMEOUT, "The program on the port did not respond in time")
            }
            Code::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "Internal error"),
        }
    }

    /// Returns the code as clients see it, such as `not_found`.
    pub fn name(self) -> String {
        let quoted = serde_json::to_string(&self).expect("a unit variant is a JSON string");
        quoted.trim_matches('"').to_owned()
    }
}
