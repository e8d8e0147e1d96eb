//! From what a person calls a terminal to its id.

use anyhow::{Context, bail};
use http::Method;
use serde_json::{Value, json};

use super::client::{ApiClient, ApiError, escape};

/// The thread of a person who names none.
pub(super) const DEFAULT_THREAD: &str = "main";

/// What to do about a thread that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfMissing {
    /// It comes into being.
    Make,
    /// It is an error.
    Refuse,
}

/// The id of a terminal, named by itself or by its thread.
pub(super) async fn terminal(
    client: &ApiClient,
    name: &str,
    missing: IfMissing,
) -> anyhow::Result<String> {
    if name.starts_with("term_") {
        return Ok(name.to_owned());
    }
    let path = format!("/api/threads/{}", escape(name));
    let found = client.get(&format!("{path}/terminal")).await;
    let found = match (found, missing) {
        (Err(error), IfMissing::Make) if is_missing(&error) => {
            client.json(Method::PUT, &path, Some(&json!({}))).await?;
            client.get(&format!("{path}/terminal")).await?
        }
        (found, _) => found?,
    };
    id(&found, "terminal_id")
}

/// Whether the server said that there is no such thing.
pub(super) fn is_missing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<ApiError>().is_some_and(|refusal| refusal.code == "not_found")
}

/// A field of an answer that must be there.
pub(super) fn id(answer: &Value, field: &str) -> anyhow::Result<String> {
    let found = answer[field].as_str().map(str::to_owned);
    found.with_context(|| format!("the server's answer has no {field}"))
}

/// Reads `KEY=VALUE` pairs.
pub(super) fn pairs(list: &[String]) -> anyhow::Result<Value> {
    let mut map = serde_json::Map::new();
    for pair in list {
        match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => map.insert(key.into(), value.into()),
            _ => bail!("{pair:?}: expected KEY=VALUE"),
        };
    }
    Ok(Value::Object(map))
}
