//! Whether a `DELETE` waits for what it deletes.

use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use engine::removal::Removal;

/// Whether a `DELETE` waits.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RemovalQuery {
    /// `false` answers 202 as soon as the deletion is recorded; `true` (default) waits a few seconds for
    /// it to be complete and answers 204.
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
