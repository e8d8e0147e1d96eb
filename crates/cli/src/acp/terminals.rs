//! The terminals of an agent: each is a command in a terminal of its own on the server.

use std::collections::{BTreeMap, HashMap};

use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    client::{ApiError, ApiResponse, escape},
    env::quoted,
    server_link::ServerLink,
};

/// Most bytes of output that are returned, unless the agent sets another limit.
const DEFAULT_OUTPUT_BYTES: u64 = 1 << 20;
/// Most bytes of output in one response of the server.
const OUTPUT_CHUNK_BYTES: u64 = 1 << 20;
/// How long one request waits for the end of a command.
const WAIT_MS: u64 = 30_000;
/// How often a request is repeated after the connection to the server was lost. Each attempt waits until a server
/// is ready.
const MAX_ATTEMPTS: u32 = 5;

/// Why a request for a terminal failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum TerminalFailure {
    #[error("{0}")]
    Params(String),
    #[error("there is no terminal {0:?}")]
    Missing(String),
    #[error("{0:#}")]
    Server(anyhow::Error),
}

type TerminalResult = Result<Value, TerminalFailure>;

pub(super) struct AcpTerminals {
    link: ServerLink,
    thread: String,
    /// The limits of the output that agents have set, by terminal.
    limits: Mutex<HashMap<String, u64>>,
}

/// The parameters of `terminal/create`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreateParams {
    command: String,
    args: Option<Vec<String>>,
    env: Option<Vec<EnvVariable>>,
    cwd: Option<String>,
    output_byte_limit: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct EnvVariable {
    name: String,
    value: String,
}

/// The parameters of every other method.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TerminalParams {
    terminal_id: String,
}

impl AcpTerminals {
    pub(super) fn new(link: ServerLink, thread: String) -> AcpTerminals {
        AcpTerminals { link, thread, limits: Mutex::default() }
    }

    pub(super) async fn create(&self, params: &Value) -> TerminalResult {
        let params: CreateParams = parse(params)?;
        let threads = format!("/api/threads/{}", escape(&self.thread));
        let terminal = self.post(&format!("{threads}/terminals"), &json!({})).await?;
        let terminal = text(&terminal, "terminal_id");
        let env: BTreeMap<String, String> =
            params.env.into_iter().flatten().map(|it| (it.name, it.value)).collect();
        let command = command_line(&params.command, params.args.as_deref().unwrap_or_default());
        let mut body = json!({"command": command, "env": env, "yield_ms": 0});
        if let Some(cwd) = params.cwd {
            body["cwd"] = cwd.into();
        }
        let path = format!("/api/terminals/{}", escape(&terminal));
        let started = match self.post(&format!("{path}/exec"), &body).await {
            Ok(started) => started,
            Err(error) => {
                // The refusal is what the agent has to know.
                let _ = self.send(Method::DELETE, &path, None).await;
                return Err(error);
            }
        };
        let id = text(&started, "command_id");
        if let Some(limit) = params.output_byte_limit {
            self.limits.lock().insert(id.clone(), limit);
        }
        Ok(json!({"terminalId": id}))
    }

    pub(super) async fn output(&self, params: &Value) -> TerminalResult {
        let id = parse::<TerminalParams>(params)?.terminal_id;
        let limit = self.limits.lock().get(&id).copied().unwrap_or(DEFAULT_OUTPUT_BYTES);
        // The receipt first: output that is read after it is complete if it reports an end.
        let receipt = self.receipt(&id, 0).await?;
        let (mut bytes, mut start) = self.tail(&id, "stdout", &receipt, limit).await?;
        // The shell itself reports a syntax error there; the command's errors are part of its output.
        let (errors, _) = self.tail(&id, "stderr", &receipt, limit).await?;
        bytes.extend(errors);
        start += keep_last(&mut bytes, limit);
        let status = exit_status(&receipt);
        Ok(json!({
            "output": decode(bytes),
            "truncated": start > 0,
            "exitStatus": status,
        }))
    }

    pub(super) async fn wait_for_exit(&self, params: &Value) -> TerminalResult {
        let id = parse::<TerminalParams>(params)?.terminal_id;
        loop {
            let receipt = self.receipt(&id, WAIT_MS).await?;
            if let Some(status) = exit_status(&receipt) {
                return Ok(status);
            }
        }
    }

    pub(super) async fn kill(&self, params: &Value) -> TerminalResult {
        let id = parse::<TerminalParams>(params)?.terminal_id;
        let receipt = self.receipt(&id, 0).await?;
        if exit_status(&receipt).is_none() {
            let path = format!("/api/commands/{}/cancel", escape(&id));
            match self.post(&path, &json!({})).await {
                Ok(_) => {}
                // It has just ended.
                Err(error) if status_of(&error) == Some(StatusCode::CONFLICT) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(json!({}))
    }

    pub(super) async fn release(&self, params: &Value) -> TerminalResult {
        let id = parse::<TerminalParams>(params)?.terminal_id;
        let receipt = self.receipt(&id, 0).await?;
        let path = format!("/api/terminals/{}", escape(&text(&receipt, "terminal_id")));
        self.send(Method::DELETE, &path, None).await?;
        self.limits.lock().remove(&id);
        Ok(json!({}))
    }

    async fn receipt(&self, id: &str, wait_ms: u64) -> TerminalResult {
        let path = format!("/api/commands/{}?wait_ms={wait_ms}", escape(id));
        match self.json(Method::GET, &path, None).await {
            Err(error) if status_of(&error) == Some(StatusCode::NOT_FOUND) => {
                Err(TerminalFailure::Missing(id.to_owned()))
            }
            receipt => receipt,
        }
    }

    /// Returns the last bytes of a stream, at least `limit` if there are as many, and the offset of the first.
    async fn tail(
        &self,
        id: &str,
        stream: &str,
        receipt: &Value,
        limit: u64,
    ) -> Result<(Vec<u8>, u64), TerminalFailure> {
        let known = receipt[format!("{stream}_bytes")].as_u64().unwrap_or_default();
        let mut start = known.saturating_sub(limit);
        let (mut next, mut bytes) = (start, Vec::new());
        loop {
            let path = format!(
                "/api/commands/{}/output?stream={stream}&from={next}&limit={OUTPUT_CHUNK_BYTES}",
                escape(id)
            );
            let response = self.send(Method::GET, &path, None).await?;
            let after = response.header("x-next-offset").and_then(|it| it.parse().ok());
            let chunk = response.bytes().await.map_err(TerminalFailure::Server)?;
            bytes.extend_from_slice(&chunk);
            match after {
                Some(after) if after > next => next = after,
                _ => {
                    if start > 0 {
                        start += drop_partial_character(&mut bytes);
                    }
                    return Ok((bytes, start));
                }
            }
            start += keep_last(&mut bytes, limit);
        }
    }

    async fn post(&self, path: &str, body: &Value) -> TerminalResult {
        self.json(Method::POST, path, Some(body)).await
    }

    async fn json(&self, method: Method, path: &str, body: Option<&Value>) -> TerminalResult {
        let bytes = self.send(method, path, body).await?.bytes().await;
        let bytes = bytes.map_err(TerminalFailure::Server)?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|error| TerminalFailure::Server(error.into()))
    }

    /// Sends a request, and sends it again if the connection was lost. The server answers a repeated POST request
    /// by its key.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<ApiResponse, TerminalFailure> {
        let key = format!("acp-{}", Uuid::now_v7().simple());
        let headers: &[_] = match method == Method::POST {
            true => &[("idempotency-key", key.as_str())],
            false => &[],
        };
        let mut attempts = 0;
        loop {
            let client = self.link.client().await.map_err(TerminalFailure::Server)?;
            match client.send(method.clone(), path, body, headers).await {
                Ok(response) => return Ok(response),
                Err(error) if error.is::<ApiError>() => return Err(TerminalFailure::Server(error)),
                Err(error) => {
                    self.link.lost().await;
                    attempts += 1;
                    if attempts == MAX_ATTEMPTS {
                        return Err(TerminalFailure::Server(error));
                    }
                }
            }
        }
    }
}

/// The shell command of a terminal, with one stream for all its output and no input. A command without arguments
/// may be a whole command line, as editors accept it.
fn command_line(command: &str, args: &[String]) -> String {
    let command = match args.is_empty() {
        true => command.to_owned(),
        false => {
            let words = std::iter::once(command).chain(args.iter().map(String::as_str));
            words.map(quoted).collect::<Vec<_>>().join(" ")
        }
    };
    format!("( {command}\n) < /dev/null 2>&1")
}

/// How a command ended; `None` if it runs.
fn exit_status(receipt: &Value) -> Option<Value> {
    match receipt["status"].as_str() {
        Some("running") | None => None,
        // It was killed by `terminal/kill`, or by a person.
        Some("cancelled") if receipt["exit_code"].is_null() && receipt["signal"].is_null() => {
            Some(json!({"exitCode": null, "signal": "SIGKILL"}))
        }
        Some(_) => Some(json!({"exitCode": receipt["exit_code"], "signal": receipt["signal"]})),
    }
}

/// Removes bytes from the beginning, up to a limit and a character boundary. Returns their number.
fn keep_last(bytes: &mut Vec<u8>, limit: u64) -> u64 {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let from = bytes.len().saturating_sub(limit);
    if from == 0 {
        return 0;
    }
    bytes.drain(..from);
    from as u64 + drop_partial_character(bytes)
}

/// Removes the rest of a character that was cut at the beginning. Returns the number of its bytes.
fn drop_partial_character(bytes: &mut Vec<u8>) -> u64 {
    let is_rest = |byte: &&u8| **byte & 0xc0 == 0x80;
    let rest = bytes.iter().take(3).take_while(is_rest).count();
    bytes.drain(..rest);
    rest as u64
}

/// Decodes output. A character at the end that is not complete yet is left out.
fn decode(mut bytes: Vec<u8>) -> String {
    if let Err(error) = str::from_utf8(&bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn parse<T: serde::de::DeserializeOwned>(params: &Value) -> Result<T, TerminalFailure> {
    T::deserialize(params).map_err(|error| TerminalFailure::Params(error.to_string()))
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

fn status_of(error: &TerminalFailure) -> Option<StatusCode> {
    match error {
        TerminalFailure::Server(error) => error.downcast_ref::<ApiError>().map(|it| it.status),
        TerminalFailure::Params(_) | TerminalFailure::Missing(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_words_and_a_command_alone_is_a_command_line() {
        let line = |command: &str, args: &[&str]| {
            let args: Vec<String> = args.iter().map(ToString::to_string).collect();
            command_line(command, &args)
        };
        assert_eq!(line("make test | tail", &[]), "( make test | tail\n) < /dev/null 2>&1");
        assert_eq!(line("ls", &["a b", "it's"]), "( 'ls' 'a b' 'it'\\''s'\n) < /dev/null 2>&1");
    }

    #[test]
    fn output_is_cut_at_a_character() {
        let check = |text: &str, limit, expected: &str, removed| {
            let mut bytes = text.as_bytes().to_vec();
            assert_eq!(keep_last(&mut bytes, limit), removed, "{text}");
            assert_eq!(String::from_utf8(bytes).unwrap(), expected);
        };
        check("abc", 3, "abc", 0);
        check("abc", 2, "bc", 1);
        check("aäb", 2, "b", 3);
        check("abc", 0, "", 3);
        assert_eq!(decode("a€".as_bytes()[..3].to_vec()), "a");
        assert_eq!(decode(b"a\xffb".to_vec()), "a\u{fffd}b");
    }
}
