//! JSON-RPC messages: requests for terminals and their responses.

use std::{pin::Pin, sync::Arc};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::Mutex,
};

use super::terminals::{AcpTerminals, TerminalFailure};

const PARSE_ERROR: i64 = -32700;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;
/// ACP's code for a resource that does not exist.
const RESOURCE_NOT_FOUND: i64 = -32002;

/// The prefix of the methods that are answered here.
const TERMINAL_PREFIX: &str = "terminal/";

/// Where lines are written to.
type LineOutput = Pin<Box<dyn AsyncWrite + Send>>;

/// Writes whole lines to one receiver, until it is gone. Cheap to clone.
#[derive(Clone)]
pub(super) struct LineWriter(Arc<Mutex<Option<LineOutput>>>);

impl LineWriter {
    pub(super) fn new(output: impl AsyncWrite + Send + 'static) -> LineWriter {
        LineWriter(Arc::new(Mutex::new(Some(Box::pin(output)))))
    }

    /// Sends a message. A receiver that is gone receives no more; its end is noticed where it is read from.
    pub(super) async fn send(&self, message: &Value) {
        self.send_line(&message.to_string()).await;
    }

    pub(super) async fn send_line(&self, line: &str) {
        let mut output = self.0.lock().await;
        if let Some(writer) = output.as_mut() {
            let written = async {
                writer.write_all(line.as_bytes()).await?;
                writer.write_all(b"\n").await?;
                writer.flush().await
            };
            if written.await.is_err() {
                *output = None;
            }
        }
    }

    /// Ends the stream to the receiver.
    pub(super) async fn close(&self) {
        *self.0.lock().await = None;
    }
}

/// Whether a message is a request that is answered here.
pub(super) fn is_terminal_request(message: &Value) -> bool {
    let method = message["method"].as_str().unwrap_or_default();
    method.starts_with(TERMINAL_PREFIX) && message.get("id").is_some()
}

/// Answers the request in a line; `None` for a notification or a response.
pub(super) async fn answer(terminals: &AcpTerminals, line: &str) -> Option<Value> {
    let Ok(message) = serde_json::from_str::<Value>(line) else {
        return Some(failure(&Value::Null, PARSE_ERROR, "the message is not JSON"));
    };
    let id = message.get("id")?.clone();
    let method = message["method"].as_str()?.to_owned();
    Some(answer_request(terminals, &id, &method, &message["params"]).await)
}

/// Carries out a request and returns its response.
pub(super) async fn answer_request(
    terminals: &AcpTerminals,
    id: &Value,
    method: &str,
    params: &Value,
) -> Value {
    let result = match method {
        "terminal/create" => terminals.create(params).await,
        "terminal/output" => terminals.output(params).await,
        "terminal/wait_for_exit" => terminals.wait_for_exit(params).await,
        "terminal/kill" => terminals.kill(params).await,
        "terminal/release" => terminals.release(params).await,
        _ => return failure(id, METHOD_NOT_FOUND, &format!("there is no method {method:?}")),
    };
    match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => {
            let code = match &error {
                TerminalFailure::Params(_) => INVALID_PARAMS,
                TerminalFailure::Missing(_) => RESOURCE_NOT_FOUND,
                TerminalFailure::Server(_) => INTERNAL_ERROR,
            };
            failure(id, code, &error.to_string())
        }
    }
}

fn failure(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}
