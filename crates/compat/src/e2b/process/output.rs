//! Streams the output of programs.

use std::{sync::Arc, time::Duration};

use axum::{extract::State, http::HeaderMap, response::Response};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::selector::ProcessSelectorRequest;
use crate::e2b::{
    address::DaemonCall,
    connect::{self, ConnectCode, ConnectError, Messages, ResponseStream},
};
use adapter::{
    Adapter,
    process::{ProcessEnd, ProcessOutput, SandboxProcess},
};

/// The limit of queued chunks of output for a slow client. The program itself does not wait.
const OUTPUT_QUEUE_LENGTH: usize = 8;

/// Streams the output of a running program from its beginning.
pub(in crate::e2b) async fn connect(
    State(app): State<Adapter>,
    call: DaemonCall,
    headers: HeaderMap,
    messages: Messages,
) -> Response {
    let found = async {
        let ProcessSelectorRequest { process } = messages.only().await?;
        let processes = app.processes(&call.sandbox).await?;
        let found = processes.find(process.pid, process.tag.as_deref());
        found.ok_or_else(|| process.missing())
    };
    match found.await {
        Ok(process) => follow(app, process, &headers),
        Err(failed) => connect::refused(&failed),
    }
}

pub(super) fn follow(app: Adapter, process: Arc<SandboxProcess>, headers: &HeaderMap) -> Response {
    let (response_stream, response) = connect::stream();
    let (timeout, keepalive) = (connect::timeout(headers), connect::keepalive(headers));
    let tasks = app.tasks.clone();
    tasks.spawn(async move {
        let deadline = async {
            match timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            ended = send_output(&app, &process, &response_stream, keepalive) => ended,
            () = response_stream.closed() => return,
            () = app.stopping.cancelled() => {
                Err(ConnectError::new(ConnectCode::Unavailable, "the server is stopping; the process keeps running"))
            }
            () = deadline => {
                Err(ConnectError::new(ConnectCode::DeadlineExceeded, "context deadline exceeded"))
            }
        };
        let ended = match ended {
            Err(_) if is_deleted(&app, &process).await => {
                let message = "the connection to the sandbox ended: the sandbox was not found";
                Err(ConnectError::new(ConnectCode::Unavailable, message))
            }
            ended => ended,
        };
        response_stream.end(ended).await;
    });
    response
}

/// Whether the sandbox of a program was deleted meanwhile.
async fn is_deleted(app: &Adapter, process: &SandboxProcess) -> bool {
    matches!(app.sandboxes.get(&process.terminal.thread_id).await, Ok(None))
}

/// Sends the output of a program, with keep-alive messages in between.
async fn send_output(
    app: &Adapter,
    process: &SandboxProcess,
    response_stream: &ResponseStream,
    keepalive: Duration,
) -> Result<(), ConnectError> {
    let start = json!({"event": {"start": {"pid": process.pid}}});
    if !response_stream.send(&start).await {
        return Ok(());
    }
    let (sender, mut output) = mpsc::channel(OUTPUT_QUEUE_LENGTH);
    let stream = async {
        let streamed = app.stream_until_closed(process, &sender).await;
        drop(sender);
        streamed
    };
    let forward = async {
        loop {
            let message = match tokio::time::timeout(keepalive, output.recv()).await {
                Err(_) => json!({"keepalive": {}}),
                Ok(None) => return Ok(()),
                Ok(Some(ProcessOutput::Stdout(bytes))) => {
                    json!({"data": {"stdout": connect::encode(&bytes)}})
                }
                Ok(Some(ProcessOutput::Stderr(bytes))) => {
                    json!({"data": {"stderr": connect::encode(&bytes)}})
                }
                Ok(Some(ProcessOutput::Pty(bytes))) => {
                    json!({"data": {"pty": connect::encode(&bytes)}})
                }
                Ok(Some(ProcessOutput::End(ProcessEnd::TimedOut))) => {
                    let message = "context deadline exceeded";
                    return Err(ConnectError::new(ConnectCode::DeadlineExceeded, message));
                }
                Ok(Some(ProcessOutput::End(ProcessEnd::Lost))) => {
                    let message = "the process was lost; its exit status is unknown";
                    return Err(ConnectError::new(ConnectCode::Unavailable, message));
                }
                Ok(Some(ProcessOutput::End(end))) => {
                    json!({"end": end_view(process.end_seen_by_parent(end))})
                }
            };
            if !response_stream.send(&json!({"event": message})).await {
                return Ok(());
            }
        }
    };
    let (streamed, forwarded) = tokio::join!(stream, forward);
    forwarded?;
    streamed?;
    Ok(())
}

/// The message about the end of a program. Zero values are omitted, as the protocol does.
fn end_view(end: ProcessEnd) -> Value {
    match end {
        ProcessEnd::Exit(0) => json!({"exited": true, "status": "exit status 0"}),
        ProcessEnd::Exit(code) => {
            let status = format!("exit status {code}");
            json!({"exitCode": code, "exited": true, "status": status, "error": status})
        }
        ProcessEnd::Signal(signal) => {
            let status = format!("signal: {}", signal_name(signal));
            json!({"exitCode": -1, "status": status, "error": status})
        }
        ProcessEnd::TimedOut | ProcessEnd::Lost => {
            let status = "the process was lost; its exit status is unknown";
            json!({"exitCode": -1, "status": status, "error": status})
        }
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        5 => "trace/breakpoint trap",
        6 => "aborted",
        7 => "bus error",
        8 => "floating point exception",
        9 => "killed",
        10 => "user defined signal 1",
        11 => "segmentation fault",
        12 => "user defined signal 2",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}
