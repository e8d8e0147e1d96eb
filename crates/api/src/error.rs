//! Problems: the errors of the API, and the conversion of every inner error into one.
//!
//! A handler returns `Result<_, Problem>`. A problem has a [`Code`], which decides status and title, and a
//! detail that names the resource. Internal errors are logged here, once, with their whole chain, and never
//! sent to the client.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use rustix::io::Errno;
use serde::Serialize;
use utoipa::ToSchema;

pub use super::code::Code;
use super::readiness::ReadinessCheck;
use base::lock::StillLocked;
use engine::{
    handoff::HandoffError,
    lease::LeaseError,
    project::ProjectError,
    sandbox::SandboxError,
    terminal::{KernelResource, TerminalError},
};
use files::FileError;
use machine::volume::VolumeError;
use model::{BadAnswer, Refused};
use provider::ProviderError;
use store::StoreError;

/// An error in one field of the input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// JSON pointer into the body; for a parameter, its name after a slash.
    pub pointer: String,
    /// What is wrong with the value.
    pub detail: String,
}

/// An error response, sent as `application/problem+json` (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    code: Code,
    detail: String,
    errors: Vec<FieldError>,
    checks: Vec<ReadinessCheck>,
    retry_after_seconds: Option<u64>,
}

/// An error response (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
pub struct ProblemBody {
    /// The kind of problem as a relative URI; corresponds to `code`.
    #[serde(rename = "type")]
    #[schema(example = "/docs#not_found")]
    kind: String,
    /// The kind of problem as text.
    title: &'static str,
    /// The HTTP status.
    #[schema(example = 404)]
    status: u16,
    /// What went wrong with this request.
    detail: String,
    /// The kind of problem, for programs.
    code: Code,
    /// For invalid input: every invalid field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    errors: Vec<FieldError>,
    /// For `/readyz`: what was checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    checks: Vec<ReadinessCheck>,
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        let retry_after_seconds = match code.status().0 {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Some(1),
            _ => None,
        };
        let (errors, checks) = (Vec::new(), Vec::new());
        Problem { code, detail: detail.into(), errors, checks, retry_after_seconds }
    }

    /// An invalid field of the input.
    pub fn field(code: Code, pointer: impl Into<String>, detail: impl Into<String>) -> Problem {
        let (pointer, detail) = (pointer.into(), detail.into());
        let whole =
            if pointer.is_empty() { detail.clone() } else { format!("{pointer}: {detail}") };
        Problem::new(code, whole).with(pointer, detail)
    }

    /// A field of the body with an invalid value.
    pub fn body(pointer: impl Into<String>, detail: impl Into<String>) -> Problem {
        Problem::field(Code::InvalidBody, pointer, detail)
    }

    /// A query parameter with an invalid value.
    pub fn query(name: &str, detail: impl Into<String>) -> Problem {
        Problem::field(Code::InvalidQuery, format!("/{name}"), detail)
    }

    /// A resource that does not exist: `Problem::missing("terminal", &id)`.
    pub fn missing(noun: &str, id: impl std::fmt::Display) -> Problem {
        let mut id = id.to_string();
        if id.len() > 80 {
            let end = (0..=80).rev().find(|&at| id.is_char_boundary(at)).unwrap_or(0);
            id.truncate(end);
            id.push('…');
        }
        Problem::new(Code::NotFound, format!("there is no {noun} {id:?}"))
    }

    /// An internal error, unless its cause is that the machine is short of something or its disk fails. The chain of
    /// `error` is logged and not sent to the client.
    pub fn internal(doing: &str, error: &(dyn std::error::Error + 'static)) -> Problem {
        let mut chain = error.to_string();
        let (mut code, mut source) = (of_machine(error), error.source());
        while let Some(cause) = source {
            chain.push_str(": ");
            chain.push_str(&cause.to_string());
            code = code.or_else(|| of_machine(cause));
            source = cause.source();
        }
        tracing::error!(error = %chain, "{doing}");
        let code = code.unwrap_or(Code::Internal);
        Problem::new(code, format!("{doing}: see the server's log"))
    }

    /// Adds an invalid field.
    #[must_use]
    pub fn with(mut self, pointer: impl Into<String>, detail: impl Into<String>) -> Problem {
        self.errors.push(FieldError { pointer: pointer.into(), detail: detail.into() });
        self
    }

    /// Adds what was checked.
    #[must_use]
    pub(super) fn with_checks(mut self, checks: Vec<ReadinessCheck>) -> Problem {
        self.checks = checks;
        self
    }

    /// Sets `Retry-After`.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Problem {
        self.retry_after_seconds = Some(seconds.max(1));
        self
    }

    pub fn code(&self) -> Code {
        self.code
    }

    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<SandboxError> for Problem {
    fn from(error: SandboxError) -> Problem {
        match error {
            SandboxError::TooMany { .. } => Problem::new(Code::TooManyRequests, error.to_string()),
            SandboxError::TimedOut { .. } => {
                Problem::new(Code::ProviderUnavailable, error.to_string())
            }
            SandboxError::Store(error) => Problem::from(error),
            SandboxError::Lease(error) => Problem::from(error),
            SandboxError::Terminal(error) => Problem::from(error),
            SandboxError::Refused(refused) => Problem::from(refused),
        }
    }
}

impl From<HandoffError> for Problem {
    fn from(error: HandoffError) -> Problem {
        match error {
            HandoffError::Missing(_) => Problem::new(Code::NotFound, error.to_string()),
            HandoffError::TerminalFull { .. } | HandoffError::Full { .. } => {
                Problem::new(Code::TooManyRequests, error.to_string())
            }
            HandoffError::BadAnswer(BadAnswer { field, why }) => {
                Problem::body(format!("/{field}"), why)
            }
            HandoffError::Store(error) => Problem::from(error),
            HandoffError::Terminal(error) => Problem::from(error),
        }
    }
}

impl From<LeaseError> for Problem {
    fn from(error: LeaseError) -> Problem {
        match &error {
            LeaseError::Missing { .. } => Problem::new(Code::NotFound, error.to_string()),
            LeaseError::Paused { .. } => Problem::new(Code::LeasePaused, error.to_string()),
            LeaseError::Destroyed { .. } => Problem::new(Code::Conflict, error.to_string()),
            LeaseError::NoInstance { .. } => Problem::new(Code::NotRunning, error.to_string()),
            LeaseError::Exhausted { retry_after, .. } => {
                Problem::new(Code::ProviderUnavailable, error.to_string())
                    .retry_after(retry_after.as_secs())
            }
            LeaseError::Provider { source, .. } => of_provider(&format!("{error}: "), source),
            LeaseError::Refused(refused) => Problem::from(refused.clone()),
            LeaseError::Store(error) => Problem::from(error.clone()),
            LeaseError::Stopping => Problem::new(Code::Stopping, error.to_string()),
        }
    }
}

fn of_provider(prefix: &str, source: &ProviderError) -> Problem {
    let mut detail = format!("{prefix}{source}");
    let mut cause = std::error::Error::source(source);
    while let Some(why) = cause {
        detail.push_str(&format!(": {why}"));
        cause = why.source();
    }
    match source {
        ProviderError::Unknown { .. } | ProviderError::Unsupported { .. } => {
            Problem::new(Code::NotSupported, detail)
        }
        ProviderError::Busy { retry_after, .. } => Problem::new(Code::ProviderUnavailable, detail)
            .retry_after(retry_after.map_or(1, |wait| wait.as_secs())),
        // The lease is of no interest to a caller who has to name another image.
        ProviderError::BadImage { reason } => Problem::new(Code::Unprocessable, reason),
        ProviderError::TimedOut { .. } => Problem::new(Code::Unreachable, detail),
        ProviderError::Gone { .. }
        | ProviderError::Refused { .. }
        | ProviderError::Failed { .. } => {
            tracing::warn!(error = %detail, cause = ?source, "a provider failed");
            Problem::new(Code::ProviderUnavailable, detail)
        }
    }
}

impl From<TerminalError> for Problem {
    fn from(error: TerminalError) -> Problem {
        let code = match &error {
            TerminalError::Store(error) => return Problem::from(error.clone()),
            TerminalError::StillLocked(locked) => return Problem::from(*locked),
            TerminalError::Exited | TerminalError::Gone | TerminalError::NoInput => {
                Code::NotRunning
            }
            TerminalError::Busy => Code::Busy,
            TerminalError::QueueFull
            | TerminalError::InputFull
            | TerminalError::TooManySearches => Code::TooManyRequests,
            TerminalError::NotDriver { .. } => Code::NotDriver,
            TerminalError::NotDrivable | TerminalError::NoSecrets | TerminalError::NoPorts => {
                Code::NotSupported
            }
            TerminalError::NotReading => Code::NotWaiting,
            TerminalError::Visible => Code::EchoOn,
            TerminalError::NotKept => Code::Gone,
            TerminalError::NotExecutable(_) => Code::Unprocessable,
            TerminalError::Refused(_) => Code::InvalidRequest,
            TerminalError::TooMany(_) => Code::TooManyTerminals,
            TerminalError::Exhausted { resource, .. } => match resource {
                KernelResource::Terminals => Code::OutOfTerminals,
                KernelResource::Descriptors => Code::OutOfDescriptors,
                KernelResource::Processes => Code::OutOfProcesses,
                KernelResource::Watches => Code::OutOfWatches,
                KernelResource::Memory => Code::OutOfMemory,
                KernelResource::Disk => Code::DiskFull,
            },
            TerminalError::Lease(_) => {
                return match error {
                    TerminalError::Lease(error) => Problem::from(error),
                    other => Problem::internal("unexpected error", &other),
                };
            }
            TerminalError::Remove { .. } => {
                return Problem::internal("cannot remove a terminal's files", &error);
            }
            TerminalError::Unreachable { .. } => Code::Unreachable,
            TerminalError::Failed(reason) => {
                tracing::warn!(reason, "a host failed");
                Code::ProviderUnavailable
            }
            TerminalError::Host(source) => {
                tracing::warn!(%source, "a host does not answer");
                Code::ProviderUnavailable
            }
        };
        Problem::new(code, error.to_string())
    }
}

/// Returns the code of an error that the machine causes and not the server.
fn of_machine(error: &(dyn std::error::Error + 'static)) -> Option<Code> {
    if let Some(StoreError::Unavailable { .. } | StoreError::SyncFailed { .. }) =
        error.downcast_ref()
    {
        return Some(Code::StoreUnavailable);
    }
    let error = error.downcast_ref::<std::io::Error>()?;
    match Errno::from_io_error(error)? {
        Errno::NOSPC | Errno::DQUOT => Some(Code::DiskFull),
        Errno::IO => Some(Code::StoreUnavailable),
        Errno::MFILE | Errno::NFILE => Some(Code::OutOfDescriptors),
        Errno::NOMEM => Some(Code::OutOfMemory),
        _ => None,
    }
}

impl From<StillLocked> for Problem {
    fn from(locked: StillLocked) -> Problem {
        Problem::new(Code::Overloaded, locked.to_string())
    }
}

impl From<FileError> for Problem {
    fn from(error: FileError) -> Problem {
        let code = match &error {
            FileError::BadPath { .. } => Code::InvalidPath,
            FileError::BadPattern { .. } => Code::InvalidQuery,
            FileError::Missing { .. } => Code::NotFound,
            FileError::Exists { .. } => Code::AlreadyExists,
            FileError::IsDirectory { .. } => Code::IsADirectory,
            FileError::NotDirectory { .. } => Code::NotADirectory,
            FileError::NotEmpty { .. } => Code::NotEmpty,
            FileError::NotRegular { .. } => Code::NotAFile,
            FileError::Outside { .. } | FileError::Loop { .. } => Code::OutsideRoute,
            FileError::Forbidden { .. } | FileError::ReadOnly { .. } => Code::Forbidden,
            FileError::DiskStopped { .. } => Code::StoreUnavailable,
            FileError::TooLarge { .. } => Code::BodyTooLarge,
            FileError::Full { .. } => Code::QuotaExceeded,
            FileError::Changed { .. } => Code::VersionConflict,
            FileError::NotSupported { .. } => Code::NotSupported,
            FileError::Provider(source) => return of_provider("", source),
            FileError::NoSpace => Code::DiskFull,
            FileError::Unavailable { reason } | FileError::DiskFailed { reason, .. } => {
                tracing::warn!(reason, "the file store is unavailable");
                Code::StoreUnavailable
            }
            FileError::Io { .. } => return Problem::internal("cannot use a file", &error),
        };
        Problem::new(code, error.to_string())
    }
}

impl From<ProjectError> for Problem {
    fn from(error: ProjectError) -> Problem {
        match error {
            ProjectError::Bad { field, why } => Problem::body(field, why),
            ProjectError::Default(_) => Problem::new(Code::Conflict, error.to_string()),
            ProjectError::TooMany(_) => Problem::new(Code::QuotaExceeded, error.to_string()),
            ProjectError::Archive(_) => Problem::new(Code::Unprocessable, error.to_string()),
            ProjectError::Store(error) => Problem::from(error),
            ProjectError::File(error) => Problem::from(error),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        match &error {
            StoreError::Missing { .. } => Problem::new(Code::NotFound, error.to_string()),
            StoreError::Exists { .. } => Problem::new(Code::Conflict, error.to_string()),
            StoreError::Conflict { .. } => Problem::new(Code::VersionConflict, error.to_string()),
            StoreError::BadId(_) => Problem::new(Code::InvalidPath, error.to_string()),
            StoreError::Refused(refused) => Problem::from(refused.clone()),
            StoreError::SyncFailed { .. } => {
                Problem::new(Code::StoreUnavailable, error.to_string())
            }
            StoreError::Unavailable { .. } => {
                tracing::warn!(%error, "the store is unavailable");
                Problem::new(Code::StoreUnavailable, "the store is temporarily unavailable")
            }
            StoreError::Damaged { .. } => {
                tracing::error!(%error, "the store is damaged");
                Problem::new(Code::StoreDamaged, error.to_string())
            }
        }
    }
}

impl From<VolumeError> for Problem {
    fn from(error: VolumeError) -> Problem {
        let code = match &error {
            VolumeError::BadName | VolumeError::BadSize => Code::InvalidRequest,
            VolumeError::NeedsRoot => Code::NotSupported,
            VolumeError::Exists { .. } => Code::Conflict,
            VolumeError::TooMany => Code::TooManyRequests,
            VolumeError::Disk { doing, .. } => return Problem::internal(doing, &error),
        };
        Problem::new(code, error.to_string())
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Problem {
        Problem::new(Code::Conflict, refused.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, title) = self.code.status();
        let body = ProblemBody {
            kind: format!("/docs#{}", self.code.name()),
            title,
            status: status.as_u16(),
            detail: self.detail,
            code: self.code,
            errors: self.errors,
            checks: self.checks,
        };
        let body = serde_json::to_vec(&body).expect("a problem is plain strings and numbers");
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.code == Code::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::AuthError;
    use engine::terminal::LinkError;
    use wire::ReplyCode;

    #[test]
    fn a_long_or_odd_id_is_quoted_and_cut() {
        let problem = Problem::missing("terminal", "é".repeat(100));
        assert_eq!(problem.detail(), format!("there is no terminal \"{}…\"", "é".repeat(40)));
        let problem = Problem::missing("terminal", "a\nb");
        assert_eq!(problem.detail(), "there is no terminal \"a\\nb\"");
    }

    #[test]
    fn a_wrong_image_is_the_fault_of_the_caller_and_a_silent_registry_is_not() {
        let of = |source| LeaseError::Provider {
            lease: model::LeaseId::fresh(),
            doing: "create",
            source,
        };
        let reason = "image: a:1 does not exist".to_owned();
        let problem = Problem::from(of(ProviderError::BadImage { reason }));
        assert_eq!(
            (problem.code(), problem.detail()),
            (Code::Unprocessable, "image: a:1 does not exist")
        );
        let problem = Problem::from(of(ProviderError::failed("use an image", "no answer")));
        assert_eq!(problem.code(), Code::ProviderUnavailable);
    }

    #[test]
    fn every_refusal_of_a_host_becomes_a_problem_that_names_its_cause() {
        for code in (0..=255).map(ReplyCode::from) {
            let expected = match code {
                ReplyCode::BadRequest => Code::InvalidRequest,
                ReplyCode::NoSuchTerminal | ReplyCode::Exited | ReplyCode::CommandEnded => {
                    Code::NotRunning
                }
                ReplyCode::NoMoreTerminals => Code::OutOfTerminals,
                ReplyCode::NoMoreDescriptors => Code::OutOfDescriptors,
                ReplyCode::NoMoreProcesses => Code::OutOfProcesses,
                ReplyCode::NoMemory => Code::OutOfMemory,
                ReplyCode::NoMoreWatches => Code::OutOfWatches,
                ReplyCode::Storage => Code::DiskFull,
                ReplyCode::TooManyTerminals => Code::TooManyTerminals,
                ReplyCode::InputFull | ReplyCode::QueueFull => Code::TooManyRequests,
                ReplyCode::NotExecutable => Code::Unprocessable,
                ReplyCode::Busy => Code::Busy,
                ReplyCode::NotDrivable => Code::NotSupported,
                ReplyCode::NoSuchCommand => Code::Gone,
                ReplyCode::NotReading => Code::NotWaiting,
                ReplyCode::Visible => Code::EchoOn,
                // No refusal of what a client asked for.
                ReplyCode::Ok
                | ReplyCode::AlreadyApplied
                | ReplyCode::Exists
                | ReplyCode::Unsupported
                | ReplyCode::StillRunning
                | ReplyCode::BadOffset
                | ReplyCode::BadExecutable
                | ReplyCode::Failed
                | ReplyCode::CommandExists
                | ReplyCode::Other(_) => Code::ProviderUnavailable,
            };
            let refused = LinkError::Refused { code, message: "the cause".to_owned() };
            let problem = Problem::from(TerminalError::from(refused));
            assert_eq!(problem.code(), expected, "{code:?}");
        }
    }

    #[test]
    fn an_error_that_the_machine_causes_is_not_an_internal_one() {
        let io = |errno: Errno| {
            let source = std::io::Error::from_raw_os_error(errno.raw_os_error());
            let error = FileError::Io { doing: "read", path: "/x".to_owned(), source };
            Problem::from(error).code()
        };
        assert_eq!(io(Errno::NOSPC), Code::DiskFull);
        assert_eq!(io(Errno::IO), Code::StoreUnavailable);
        assert_eq!(io(Errno::MFILE), Code::OutOfDescriptors);
        assert_eq!(io(Errno::NOMEM), Code::OutOfMemory);
        assert_eq!(io(Errno::BADF), Code::Internal);
        let stored = AuthError::from(StoreError::SyncFailed { reason: "EIO".to_owned() });
        let problem = Problem::internal("cannot make a share", &stored);
        assert_eq!(problem.code(), Code::StoreUnavailable);
    }

    #[test]
    fn a_temporary_problem_carries_retry_after() {
        for code in [Code::TooManyRequests, Code::Overloaded, Code::DiskFull] {
            let response = Problem::new(code, "x").into_response();
            assert!(response.headers().contains_key("retry-after"), "{code:?}");
        }
        assert_eq!(Code::VersionConflict.name(), "version_conflict");
    }
}
