//! Searches files, and replaces text in them.

use std::io::Read;

use axum::extract::{Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    query::DaytonaFileQuery,
    tool::{existing_path, tool},
};
use crate::daytona::{DaytonaJson, DaytonaRefusal, ToolboxSandbox};
use adapter::{
    Adapter,
    instance::{absolute, relative},
};
use files::{Above, FileError, memory::Expect};

/// The limit of a file in which text is replaced.
const MAX_REPLACED_BYTES: u64 = 16 << 20;

/// Finds the lines of files that match a pattern.
pub(in crate::daytona) async fn find(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Query(query): Query<DaytonaFileQuery>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let path = existing_path(&app, &sandbox, &query).await?;
    let mut found = Vec::new();
    // A text that is not a valid pattern is searched literally.
    for options in ["-rnIZs", "-rnIZsF"] {
        let args = [options, "-e", &query.pattern, "--", &path];
        let (code, output) = tool(&app, &sandbox, "grep", &args).await?;
        found = output;
        if code < 2 || !found.is_empty() {
            break;
        }
    }
    let mut lines = Vec::new();
    for line in String::from_utf8_lossy(&found).lines() {
        let Some((file, rest)) = line.split_once('\0') else { continue };
        let Some((number, content)) = rest.split_once(':') else { continue };
        let number: u64 = number.parse().unwrap_or(0);
        lines.push(json!({"file": file, "line": number, "content": content}));
    }
    Ok(axum::Json(json!(lines)))
}

/// Finds the files whose names match a pattern.
pub(in crate::daytona) async fn search(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Query(query): Query<DaytonaFileQuery>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let path = existing_path(&app, &sandbox, &query).await?;
    let args = [&path, "-mindepth", "1", "-name", &query.pattern, "-print0"];
    let (_, found) = tool(&app, &sandbox, "find", &args).await?;
    let text = String::from_utf8_lossy(&found);
    let files: Vec<&str> = text.split('\0').filter(|file| !file.is_empty()).collect();
    Ok(axum::Json(json!({"files": files})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::daytona) struct ReplaceRequest {
    files: Vec<String>,
    pattern: String,
    new_value: String,
}

/// Replaces a text in files.
pub(in crate::daytona) async fn replace(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<ReplaceRequest>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if request.pattern.is_empty() {
        return Err(DaytonaRefusal::bad("pattern is missing"));
    }
    let files = app.sandbox_files(&sandbox).await?;
    let mut results = Vec::new();
    for file in request.files {
        let path = absolute(&file, &sandbox.row.home);
        let (pattern, new_value) = (request.pattern.clone(), request.new_value.clone());
        let replaced = files.act(move |directory| {
            let path = relative(&path)?;
            let (file, stat) = directory.read(&path)?;
            if stat.size > MAX_REPLACED_BYTES {
                return Err(FileError::TooLarge { path: stat.path, limit: MAX_REPLACED_BYTES });
            }
            let mut text = String::new();
            file.take(MAX_REPLACED_BYTES)
                .read_to_string(&mut text)
                .map_err(|error| FileError::from_io("read", &stat.path, error))?;
            let mut part = directory.write(&path, Above::MustExist, Expect::Anything)?;
            part.write(text.replace(&pattern, &new_value).as_bytes())?;
            part.finish().map(drop)
        });
        results.push(match replaced.await {
            Ok(()) => json!({"file": file, "success": true}),
            Err(error) => json!({"file": file, "success": false, "error": error.to_string()}),
        });
    }
    Ok(axum::Json(json!(results)))
}
