//! Error responses and request bodies in Daytona's format.

use axum::{
    extract::{FromRequest, Request},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use api::{error::Problem, extract::OptionalJson};
use engine::{sandbox::SandboxError, terminal::TerminalError};
use files::FileError;
use model::Timestamp;
use store::StoreError;

/// An error response in Daytona's format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaytonaRefusal {
    status: StatusCode,
    message: String,
    /// The error code of the toolbox, where the status alone is not enough.
    code: Option<&'static str>,
}

impl DaytonaRefusal {
    pub fn new(status: StatusCode, message: impl Into<String>) -> DaytonaRefusal {
        DaytonaRefusal { status, message: message.into(), code: None }
    }

    /// An error with a code of the toolbox.
    pub(super) fn coded(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
    ) -> DaytonaRefusal {
        DaytonaRefusal { status, message: message.into(), code: Some(code) }
    }

    pub(super) fn bad(message: impl Into<String>) -> DaytonaRefusal {
        DaytonaRefusal::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn missing(message: impl Into<String>) -> DaytonaRefusal {
        DaytonaRefusal::new(StatusCode::NOT_FOUND, message)
    }

    pub(super) fn body(&self) -> serde_json::Value {
        let reason = self.status.canonical_reason().unwrap_or("error");
        let reason = reason.to_uppercase().replace([' ', '-'], "_");
        json!({
            "statusCode": self.status.as_u16(),
            "message": self.message,
            "error": reason,
            "code": self.code.unwrap_or(&reason),
            "source": if self.code.is_some() { "DAYTONA_DAEMON" } else { "DAYTONA_API" },
            "timestamp": Timestamp::now().to_string(),
            "path": "",
            "method": "",
        })
    }
}

impl From<Problem> for DaytonaRefusal {
    fn from(problem: Problem) -> DaytonaRefusal {
        DaytonaRefusal::new(problem.code().status().0, problem.detail())
    }
}

impl From<TerminalError> for DaytonaRefusal {
    fn from(error: TerminalError) -> DaytonaRefusal {
        Problem::from(error).into()
    }
}

impl From<StoreError> for DaytonaRefusal {
    fn from(error: StoreError) -> DaytonaRefusal {
        Problem::from(error).into()
    }
}

impl From<SandboxError> for DaytonaRefusal {
    fn from(error: SandboxError) -> DaytonaRefusal {
        Problem::from(error).into()
    }
}

impl From<FileError> for DaytonaRefusal {
    fn from(error: FileError) -> DaytonaRefusal {
        let (status, code) = match &error {
            FileError::Missing { .. } => (StatusCode::NOT_FOUND, "FILE_NOT_FOUND"),
            FileError::Exists { .. } => (StatusCode::CONFLICT, "CONFLICT"),
            FileError::Forbidden { .. } | FileError::ReadOnly { .. } => {
                (StatusCode::FORBIDDEN, "FILE_ACCESS_DENIED")
            }
            FileError::BadPath { .. }
            | FileError::IsDirectory { .. }
            | FileError::NotDirectory { .. }
            | FileError::NotEmpty { .. }
            | FileError::NotRegular { .. } => (StatusCode::BAD_REQUEST, "INVALID_FILE_PATH"),
            _ => return Problem::from(error).into(),
        };
        DaytonaRefusal::coded(status, code, error.to_string())
    }
}

impl IntoResponse for DaytonaRefusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.body())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// An optional JSON body, with errors in Daytona's format.
pub struct DaytonaJson<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for DaytonaJson<T> {
    type Rejection = DaytonaRefusal;

    async fn from_request(mut request: Request, state: &S) -> Result<Self, DaytonaRefusal> {
        // The clients omit the content type of some requests.
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().entry(header::CONTENT_TYPE).or_insert(json);
        let OptionalJson(body) = OptionalJson::from_request(request, state).await?;
        Ok(DaytonaJson(body))
    }
}
