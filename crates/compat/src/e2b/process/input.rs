//! Input, size and signals for programs.

use axum::{extract::State, response::Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::selector::{ProcessSelectorRequest, PtyOptions, Selector};
use crate::e2b::{
    address::DaemonCall,
    connect::{self, ConnectCode, ConnectError, Messages, Unary},
};
use adapter::{Adapter, process::SandboxProcess};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Input for a program.
#[derive(Debug, Deserialize)]
struct ProcessInput {
    stdin: Option<String>,
    pty: Option<String>,
}

impl ProcessInput {
    async fn write(&self, app: &Adapter, process: &SandboxProcess) -> Result<(), ConnectError> {
        let data = match (&self.stdin, &self.pty) {
            (Some(data), None) if !process.is_pty() => data,
            (None, Some(data)) if process.is_pty() => data,
            (Some(_), None) => {
                return Err(ConnectError::new(
                    ConnectCode::FailedPrecondition,
                    "the process has a PTY; send pty input",
                ));
            }
            (None, Some(_)) => {
                return Err(ConnectError::new(
                    ConnectCode::FailedPrecondition,
                    "the process has no PTY",
                ));
            }
            _ => {
                return Err(ConnectError::new(
                    ConnectCode::InvalidArgument,
                    "the request has no input",
                ));
            }
        };
        app.write_stdin(process, connect::decode(data)?).await?;
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
pub(in crate::e2b) struct SendInput {
    process: Selector,
    input: ProcessInput,
}

/// Writes to the standard input or the PTY of a program.
pub(in crate::e2b) async fn send_input(
    State(app): State<Adapter>,
    call: DaemonCall,
    Unary(request): Unary<SendInput>,
) -> Result<axum::Json<Value>, ConnectError> {
    let process = request.process.running(&app, &call.sandbox).await?;
    request.input.write(&app, &process).await?;
    Ok(axum::Json(json!({})))
}

#[derive(Debug, Deserialize)]
struct StreamInput {
    start: Option<ProcessSelectorRequest>,
    data: Option<StreamData>,
}

#[derive(Debug, Deserialize)]
struct StreamData {
    input: ProcessInput,
}

/// Streams input to a program.
pub(in crate::e2b) async fn stream_input(
    State(app): State<Adapter>,
    call: DaemonCall,
    mut messages: Messages,
) -> Response {
    let written = async {
        let mut process = None;
        while let Some(StreamInput { start, data }) = messages.next().await? {
            if let Some(selector) = start {
                process = Some(selector.process.running(&app, &call.sandbox).await?);
            }
            if let Some(data) = data {
                let process = process.as_ref();
                let process = process.ok_or_else(|| {
                    ConnectError::new(
                        ConnectCode::InvalidArgument,
                        "the first message names no process",
                    )
                })?;
                data.input.write(&app, process).await?;
            }
        }
        Ok::<_, ConnectError>(())
    };
    match written.await {
        Err(failed) => connect::refused(&failed),
        Ok(()) => {
            let (response_stream, response) = connect::stream();
            response_stream.send(&json!({})).await;
            response_stream.end(Ok(())).await;
            response
        }
    }
}

/// Closes the standard input of a program.
pub(in crate::e2b) async fn close_stdin(
    State(app): State<Adapter>,
    call: DaemonCall,
    Unary(request): Unary<ProcessSelectorRequest>,
) -> Result<axum::Json<Value>, ConnectError> {
    let process = request.process.running(&app, &call.sandbox).await?;
    app.close_stdin(&process).await?;
    Ok(axum::Json(json!({})))
}

#[derive(Debug, Deserialize)]
pub(in crate::e2b) struct UpdateProcess {
    process: Selector,
    pty: Option<PtyOptions>,
}

/// Resizes the PTY of a program.
pub(in crate::e2b) async fn update(
    State(app): State<Adapter>,
    call: DaemonCall,
    Unary(request): Unary<UpdateProcess>,
) -> Result<axum::Json<Value>, ConnectError> {
    let process = request.process.running(&app, &call.sandbox).await?;
    if let Some(pty) = &request.pty
        && !app.resize_process(&process, pty.size()).await?
    {
        return Err(ConnectError::new(ConnectCode::FailedPrecondition, "the process has no PTY"));
    }
    Ok(axum::Json(json!({})))
}

#[derive(Debug, Deserialize)]
pub(in crate::e2b) struct SendSignal {
    process: Selector,
    signal: Option<Value>,
}

/// Sends a signal to a program.
pub(in crate::e2b) async fn send_signal(
    State(app): State<Adapter>,
    call: DaemonCall,
    Unary(request): Unary<SendSignal>,
) -> Result<axum::Json<Value>, ConnectError> {
    let signal = match &request.signal {
        Some(Value::String(name)) => match name.as_str() {
            "SIGNAL_SIGTERM" => Some(SIGTERM),
            "SIGNAL_SIGKILL" => Some(SIGKILL),
            _ => None,
        },
        Some(Value::Number(number)) => match number.as_i64() {
            Some(15) => Some(SIGTERM),
            Some(9) => Some(SIGKILL),
            _ => None,
        },
        _ => None,
    };
    let unknown =
        || ConnectError::new(ConnectCode::Unimplemented, "only SIGTERM and SIGKILL are supported");
    let signal = signal.ok_or_else(unknown)?;
    let process = request.process.running(&app, &call.sandbox).await?;
    app.signal_process(&call.sandbox, &process, signal).await?;
    Ok(axum::Json(json!({})))
}
