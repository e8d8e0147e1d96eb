//! Lists programs.

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::e2b::{
    address::DaemonCall,
    connect::{ConnectError, Unary},
};
use adapter::{Adapter, interpreter::is_context};

#[derive(Debug, Deserialize)]
pub(in crate::e2b) struct Empty {}

/// Lists the running programs.
pub(in crate::e2b) async fn list(
    State(app): State<Adapter>,
    call: DaemonCall,
    Unary(Empty {}): Unary<Empty>,
) -> Result<axum::Json<Value>, ConnectError> {
    let processes = app.processes(&call.sandbox).await?;
    let programs = processes.all().into_iter().filter(|process| !is_context(process));
    let views = programs.map(|process| {
        let mut view = json!({"config": process.config, "pid": process.pid});
        if let Some(tag) = &process.tag {
            view["tag"] = tag.as_str().into();
        }
        view
    });
    let views: Vec<Value> = views.collect();
    Ok(axum::Json(if views.is_empty() { json!({}) } else { json!({"processes": views}) }))
}
