//! Snapshots of sandboxes' files.

use axum::{
    extract::{Path, State},
    http::{HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    E2bJson, E2bRefusal,
    address::sandbox_id,
    template::{BASE, DEFAULT_TAG_SUFFIX},
    view::find,
};
use adapter::{Adapter, build::is_of_build, copy::has_snapshot};
use api::extract::Query;

/// The limit of snapshots per page.
const MAX_PAGE: usize = 100;

/// The requested name of a snapshot.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CreateSnapshotRequest {
    name: Option<String>,
}

fn snapshot_view(name: &str) -> Value {
    json!({"snapshotID": name, "names": [name]})
}

/// Takes a snapshot of a sandbox's files.
pub(super) async fn create(
    State(app): State<Adapter>,
    Path(id): Path<String>,
    E2bJson(request): E2bJson<CreateSnapshotRequest>,
) -> Result<(StatusCode, axum::Json<Value>), E2bRefusal> {
    let sandbox = find(&app, &id).await?;
    let name = match request.name.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => name.strip_suffix(DEFAULT_TAG_SUFFIX).unwrap_or(name).to_owned(),
        None => format!("snapshot-{}", uuid::Uuid::now_v7().simple()),
    };
    if name == BASE {
        return Err(E2bRefusal::new(
            StatusCode::BAD_REQUEST,
            format!("a snapshot cannot be named {BASE}"),
        ));
    }
    app.snapshot_sandbox(&sandbox, &name).await?;
    Ok((StatusCode::CREATED, axum::Json(snapshot_view(&name))))
}

/// The filters and the page of a list of snapshots. A repeated parameter is refused.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SnapshotListQuery {
    #[serde(rename = "sandboxID")]
    sandbox_id: Option<String>,
    name: Option<String>,
    limit: Option<usize>,
    #[serde(rename = "nextToken")]
    next_token: Option<String>,
}

/// The snapshots of a page, ordered by name, and the token of the next page.
fn page<'a>(
    names: impl Iterator<Item = &'a String>,
    limit: usize,
    after: Option<&str>,
) -> (Vec<&'a String>, Option<String>) {
    let mut names = names.filter(|name| after.is_none_or(|after| name.as_str() > after));
    let page: Vec<_> = names.by_ref().take(limit).collect();
    let next = names.next().and(page.last()).map(|last| URL_SAFE_NO_PAD.encode(last));
    (page, next)
}

/// Returns a page of snapshots, optionally of one sandbox or with one name.
pub(super) async fn list(
    State(app): State<Adapter>,
    Query(filter): Query<SnapshotListQuery>,
) -> Result<Response, E2bRefusal> {
    let bad = |message: String| E2bRefusal::new(StatusCode::BAD_REQUEST, message);
    let limit = filter.limit.unwrap_or(MAX_PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(bad(format!("limit must be 1 to {MAX_PAGE}")));
    }
    let after = match filter.next_token.as_deref().filter(|token| !token.is_empty()) {
        None => None,
        Some(token) => {
            let name = URL_SAFE_NO_PAD.decode(token).ok().and_then(|it| String::from_utf8(it).ok());
            Some(name.ok_or_else(|| bad("invalid nextToken".to_owned()))?)
        }
    };
    let source = match filter.sandbox_id.as_deref().and_then(sandbox_id) {
        Some(id) => match app.sandboxes.get(&id).await? {
            Some(sandbox) => Some(sandbox),
            None => return Ok(axum::Json(json!([])).into_response()),
        },
        None => None,
    };
    let wanted =
        filter.name.as_deref().map(|name| name.strip_suffix(DEFAULT_TAG_SUFFIX).unwrap_or(name));
    let matches = |name: &&String| {
        !is_of_build(name)
            && wanted.is_none_or(|wanted| *name == wanted)
            && source.as_ref().is_none_or(|sandbox| has_snapshot(sandbox, name))
    };
    let all = app.snapshots().await?;
    let (names, next) = page(all.keys().filter(matches), limit, after.as_deref());
    let views: Vec<_> = names.into_iter().map(|name| snapshot_view(name)).collect();
    let mut response = axum::Json(views).into_response();
    if let Some(Ok(next)) = next.map(|next| HeaderValue::from_str(&next)) {
        response.headers_mut().insert("x-next-token", next);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cover_all_names_once() {
        let names: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).into();
        let (first, next) = page(names.iter(), 2, None);
        assert_eq!(first, ["a", "b"]);
        let next = URL_SAFE_NO_PAD.decode(next.unwrap()).unwrap();
        let (second, next) = page(names.iter(), 2, std::str::from_utf8(&next).ok());
        assert_eq!((second, next), (vec![&names[2], &names[3]], None));
        assert_eq!(page(names.iter(), 4, None).1, None);
    }
}
