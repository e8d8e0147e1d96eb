//! Whether a `DELETE` waits for what it deletes.

use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use engine::removal::Removal;

/// Options of a deletion.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RemovalQuery {
    /// `true` (default) waits a few seconds for the deletion to complete and responds with 204; `false`
    /// responds with 202 as soon as it is recorded.
    wait: Option<bool>,
}

impl RemovalQuery {
    /// The answer to a `DELETE`.
    pub(super) async fn answer(self, removal: Removal) -> StatusCode {
        if self.wait == Some(false) {
            return StatusCode::ACCEPTED;
        }
        removal.wait().await;
        StatusCode::NO_CONTENT
    }
}
