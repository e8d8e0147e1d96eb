//! Sessions over all threads.

use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::Query,
    page::{self, List},
    threads::SessionView,
};
use model::SessionStatus;
use store::Page;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list_sessions))
}

/// Which sessions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SessionsQuery {
    /// Only those with this status: `active`, `idle`, `expired` or `closed`.
    status: Option<String>,
    /// Items of the page.
    limit: Option<u32>,
    /// Where the page begins.
    cursor: Option<String>,
}

/// The sessions of all threads, ended ones too, newest first. With `status` a page may hold fewer
/// items than `limit`; the list ends where `next_cursor` is null.
#[utoipa::path(get, path = "/api/sessions", tag = "sessions", params(SessionsQuery),
    responses((status = 200, description = "A page of sessions", body = List<SessionView>)))]
async fn list_sessions(
    State(app): State<App>,
    Query(query): Query<SessionsQuery>,
) -> Result<axum::Json<List<SessionView>>, Problem> {
    let status = match query.status.as_deref() {
        None => None,
        Some("active") => Some(SessionStatus::Active),
        Some("idle") => Some(SessionStatus::Idle),
        Some("expired") => Some(SessionStatus::Expired),
        Some("closed") => Some(SessionStatus::Closed),
        Some(_) => {
            return Err(Problem::query("status", "must be active, idle, expired or closed"));
        }
    };
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let Page { items, next } = app.sessions.list(status, request).await?;
    let items = items.into_iter().map(SessionView::from).collect();
    Ok(axum::Json(Page { items, next }.into()))
}
