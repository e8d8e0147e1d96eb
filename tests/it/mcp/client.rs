//! A plain MCP client over HTTP.

use serde_json::{Value, json};

use super::schema;
use harness::{Answer, Client, Request};

pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// The `_meta` of a stateless request.
pub fn meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

/// Builds a stateless request.
pub fn request(client: &Client, method: &str, mut params: Value, capabilities: &Value) -> Request {
    let name = ["name", "uri", "taskId"].iter().find_map(|key| params[*key].as_str());
    let name = name.map(str::to_owned);
    if params["_meta"].is_null() {
        params["_meta"] = json!({});
    }
    for (key, value) in meta(capabilities).as_object().unwrap() {
        params["_meta"][key] = value.clone();
    }
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let request = client
        .request("POST", "/mcp")
        .json(&body)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method);
    match name {
        Some(name) => request.header("mcp-name", &name),
        None => request,
    }
}

/// Returns the messages of a response, as JSON or as events.
#[track_caller]
pub fn messages(answer: &Answer) -> Vec<Value> {
    if !answer.header("content-type").unwrap_or_default().starts_with("text/event-stream") {
        return vec![answer.json()];
    }
    let text = answer.text();
    let data = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    data.filter(|data| !data.is_empty()).map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// Sends a stateless request and returns its result.
#[track_caller]
pub fn ask(client: &Client, method: &str, params: Value, capabilities: &Value) -> Value {
    let answer = request(client, method, params, capabilities).send();
    let last = messages(answer.expect_status(200)).pop().unwrap();
    assert!(last["error"].is_null(), "{method}: {last}");
    last["result"].clone()
}

/// Calls a tool and returns its result, error or not. Structured results must be as the tool describes them.
#[track_caller]
pub fn call(client: &Client, tool: &str, arguments: Value) -> Value {
    let none = json!({});
    let result = ask(client, "tools/call", json!({"name": tool, "arguments": arguments}), &none);
    if let Some(data) = result.get("structuredContent") {
        let listed = ask(client, "tools/list", json!({}), &none);
        let tools = listed["tools"].as_array().unwrap();
        let entry = tools.iter().find(|entry| entry["name"] == tool).unwrap();
        schema::check(&entry["outputSchema"], data);
    }
    result
}

/// Calls a tool that must succeed, and returns its data.
#[track_caller]
pub fn data(client: &Client, tool: &str, arguments: Value) -> Value {
    let result = call(client, tool, arguments);
    assert_eq!(result["isError"], false, "{tool}: {result}");
    result["structuredContent"].clone()
}

/// Calls a tool that must fail, and returns its message.
#[track_caller]
pub fn failure(client: &Client, tool: &str, arguments: Value) -> String {
    let result = call(client, tool, arguments);
    assert_eq!(result["isError"], true, "{tool}: {result}");
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

pub fn tasks_capability() -> Value {
    json!({"extensions": {TASKS: {}}})
}
