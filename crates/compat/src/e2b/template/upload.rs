//! Uploads of files for builds.

use axum::{
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

use super::lookup::find;
use crate::e2b::E2bRefusal;
use adapter::{Adapter, build::upload};

/// The lifetime of an upload link.
const UPLOAD_LINK_SECONDS: i64 = 3600;

/// Returns whether files are already uploaded, and a link to upload them.
pub(in crate::e2b) async fn files(
    State(app): State<Adapter>,
    Path((name, hash)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, E2bRefusal> {
    let template = find(&app, &name).await?;
    let path = upload::path(&app.settings.home, &hash)?;
    let present = tokio::fs::try_exists(path).await.unwrap_or(false);
    let until = app.now().at.as_second() + UPLOAD_LINK_SECONDS;
    let signature = app.keys.upload(&hash, until);
    let header_text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let own_scheme = app.settings.scheme().name();
    let scheme =
        header_text("x-forwarded-proto").filter(|scheme| *scheme == "https").unwrap_or(own_scheme);
    let address = match header_text(header::HOST.as_str()) {
        Some(host) => format!("{scheme}://{host}"),
        None => app.url.clone(),
    };
    let id = &template.template_id;
    let url = format!("{address}/templates/{id}/files/{hash}?until={until}&signature={signature}");
    let body = axum::Json(json!({"present": present, "url": url}));
    Ok((StatusCode::CREATED, body).into_response())
}

/// The hash of the files that a request to this path uploads.
pub fn uploaded_hash(path: &str) -> Option<&str> {
    let (template, hash) = path.strip_prefix("/templates/")?.split_once("/files/")?;
    (!template.contains('/') && !hash.contains('/')).then_some(hash)
}

/// Whether a request uploads files with a valid link of [`files`].
pub fn may_upload(app: &Adapter, method: &Method, uri: &Uri) -> bool {
    let Some(hash) = uploaded_hash(uri.path()).filter(|_| *method == Method::PUT) else {
        return false;
    };
    let (mut until, mut signature) = (None, None);
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        match &*name {
            "until" => until = value.parse::<i64>().ok(),
            "signature" => signature = Some(value.into_owned()),
            _ => {}
        }
    }
    let (Some(until), Some(signature)) = (until, signature) else { return false };
    app.keys.opens_upload(hash, until, &signature, app.now().at.as_second())
}

/// Receives the archive of an upload link.
pub(in crate::e2b) async fn receive(
    State(app): State<Adapter>,
    Path((_, hash)): Path<(String, String)>,
    body: Body,
) -> Result<StatusCode, E2bRefusal> {
    upload::receive(&app, &hash, body).await?;
    Ok(StatusCode::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upload_paths_are_parsed() {
        assert_eq!(uploaded_hash("/templates/t/files/abc"), Some("abc"));
        for other in
            ["/templates/t/files/a/b", "/templates/files/a", "/files", "/templates/a/b/files/c"]
        {
            assert_eq!(uploaded_hash(other), None, "{other}");
        }
    }
}
