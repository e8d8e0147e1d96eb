//! Error responses and request bodies in E2B's format.

use axum::{
    extract::{FromRequest, Request},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use api::{error::Problem, extract::OptionalJson};
use engine::sandbox::SandboxError;
use files::FileError;
use store::StoreError;

/// An error response in E2B's format: `{"code": 404, "message": "…"}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct E2bRefusal {
    status: StatusCode,
    message: String,
}

impl E2bRefusal {
    pub fn new(status: StatusCode, message: impl Into<String>) -> E2bRefusal {
        E2bRefusal { status, message: message.into() }
    }

    pub(super) fn body(&self) -> Value {
        json!({"code": self.status.as_u16(), "message": self.message})
    }
}

impl From<Problem> for E2bRefusal {
    fn from(problem: Problem) -> E2bRefusal {
        E2bRefusal::new(problem.code().status().0, problem.detail())
    }
}

impl From<StoreError> for E2bRefusal {
    fn from(error: StoreError) -> E2bRefusal {
        E2bRefusal::from(Problem::from(error))
    }
}

impl From<SandboxError> for E2bRefusal {
    fn from(error: SandboxError) -> E2bRefusal {
        E2bRefusal::from(Problem::from(error))
    }
}

impl From<FileError> for E2bRefusal {
    fn from(error: FileError) -> E2bRefusal {
        E2bRefusal::from(Problem::from(error))
    }
}

impl IntoResponse for E2bRefusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.body())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

pub(super) fn bad(message: impl Into<String>) -> E2bRefusal {
    E2bRefusal::new(StatusCode::BAD_REQUEST, message)
}

/// An optional JSON body, with errors in E2B's format.
pub struct E2bJson<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for E2bJson<T> {
    type Rejection = E2bRefusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, E2bRefusal> {
        let OptionalJson(body) = OptionalJson::from_request(request, state).await?;
        Ok(E2bJson(body))
    }
}
