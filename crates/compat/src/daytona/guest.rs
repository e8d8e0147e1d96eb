//! The sandbox that a request of the toolbox is for.

use axum::{
    extract::{FromRequestParts, Path},
    http::request::Parts,
};

use super::{DaytonaRefusal, view, view::find};
use adapter::Adapter;
use store::SandboxRecord;

/// The sandbox that a path of the toolbox names, running.
pub struct DaytonaGuest(pub SandboxRecord);

impl FromRequestParts<Adapter> for DaytonaGuest {
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
        Ok(DaytonaGuest(sandbox))
    }
}
