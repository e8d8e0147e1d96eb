//! Starts programs.

use std::{collections::BTreeMap, sync::Arc};

use axum::{extract::State, http::HeaderMap, response::Response};
use serde::Deserialize;

use super::{output::follow, selector::PtyOptions};
use crate::e2b::{
    address::DaemonCall,
    connect::{self, ConnectCode, ConnectError, Messages},
};
use adapter::{
    Adapter,
    build::CWD,
    instance::{absolute, relative},
    process::{SandboxProcess, Start},
    wrap::Config,
};

/// A request to start a program.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::e2b) struct StartRequest {
    process: ProcessConfig,
    pty: Option<PtyOptions>,
    tag: Option<String>,
    stdin: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct ProcessConfig {
    cmd: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    envs: BTreeMap<String, String>,
    cwd: Option<String>,
}

/// Starts a program and sends its output.
pub(in crate::e2b) async fn start(
    State(app): State<Adapter>,
    call: DaemonCall,
    headers: HeaderMap,
    messages: Messages,
) -> Response {
    let request = match messages.only::<StartRequest>().await {
        Ok(request) => request,
        Err(failed) => return connect::refused(&failed),
    };
    match start_program(&app, &call, &headers, request).await {
        Ok(process) => follow(app, process, &headers),
        Err(failed) => connect::refused(&failed),
    }
}

async fn start_program(
    app: &Adapter,
    call: &DaemonCall,
    headers: &HeaderMap,
    request: StartRequest,
) -> Result<Arc<SandboxProcess>, ConnectError> {
    let sandbox = &call.sandbox;
    let home = call.home()?;
    let StartRequest { process, pty, tag, stdin } = request;
    let invalid = |message: &str| ConnectError::new(ConnectCode::InvalidArgument, message);
    if process.cmd.is_empty() {
        return Err(invalid("the request names no program"));
    }
    let words = process.args.iter().chain([&process.cmd]);
    if words.chain(process.envs.values()).any(|word| word.contains('\0')) {
        return Err(invalid("arguments and variables must not contain NUL"));
    }
    let is_name = |name: &String| {
        let mut letters = name.bytes();
        letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
            && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
    };
    if let Some(name) = process.envs.keys().find(|name| !is_name(name)) {
        return Err(invalid(&format!("{name:?} is not a valid variable name")));
    }
    // The default is the template's directory.
    let default = sandbox.row.extra.get(CWD).map_or("", String::as_str);
    let cwd = process.cwd.as_deref().filter(|cwd| !cwd.is_empty()).unwrap_or(default);
    let cwd = absolute(cwd, home);
    let files = app.sandbox_files(sandbox).await?;
    let path = cwd.clone();
    let found = files.act(move |directory| directory.stat_followed(&relative(&path)?)).await;
    if !found.is_ok_and(|found| found.kind == files::FileKind::Directory) {
        return Err(invalid(&format!("cwd '{cwd}' does not exist")));
    }
    let mut envs = call.environment();
    envs.extend(process.envs);
    let start = Start {
        config: Config { cmd: process.cmd, args: process.args, envs, cwd: Some(cwd) },
        tag,
        stdin: stdin.unwrap_or(true),
        timeout: connect::timeout(headers),
        pty: pty.as_ref().map(PtyOptions::size),
    };
    Ok(app.start_process(sandbox, start).await?)
}
