//! The sandbox of a toolbox request.

use axum::{
    extract::{FromRequestParts, Path},
    http::request::Parts,
};

use super::{DaytonaRefusal, view, view::find};
use adapter::Adapter;
use store::SandboxRecord;

/// The running sandbox in the path of a toolbox request. A request to a stopped sandbox is refused.
pub struct ToolboxSandbox(pub SandboxRecord);

impl FromRequestParts<Adapter> for ToolboxSandbox {
    type Rejection = DaytonaRefusal;

    async fn from_request_parts(parts: &mut Parts, app: &Adapter) -> Result<Self, DaytonaRefusal> {
        let names =
            Path::<std::collections::HashMap<String, String>>::from_request_parts(parts, app);
        let Path(names) = names.await.map_err(|error| DaytonaRefusal::bad(error.body_text()))?;
        let name = names.get("id").map_or("", String::as_str);
        let sandbox = find(app, name).await?;
        match view::state(&sandbox) {
            "started" => {}
            state => {
                let message = format!("Sandbox {name} is {state}; start it first");
                return Err(DaytonaRefusal::bad(message));
            }
        }
        app.used(sandbox.id()).await;
        Ok(ToolboxSandbox(sandbox))
    }
}
