//! Clients that begin with `initialize` (2025-11-25).

use serde_json::{Value, json};

use super::client::messages;
use harness::{Answer, Client, Home, Server, wait_for};

/// A client with a session.
struct Session {
    client: Client,
    id: String,
}

impl Session {
    fn begin(client: Client) -> Session {
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }});
        let request = client.request("POST", "/mcp").json(&body);
        let answer = request.header("accept", "application/json, text/event-stream").send();
        let result = messages(answer.expect_status(200)).pop().unwrap()["result"].clone();
        assert_eq!(result["protocolVersion"], "2025-11-25", "{result}");
        assert_eq!(result["serverInfo"]["name"], "stead");
        let id = answer.header("mcp-session-id").unwrap().to_owned();
        let session = Session { client, id };
        let body = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        session.post(&body).expect_status(202);
        session
    }

    fn post(&self, body: &Value) -> Answer {
        self.client
            .request("POST", "/mcp")
            .json(body)
            .header("accept", "application/json, text/event-stream")
            .header("mcp-session-id", &self.id)
            .header("mcp-protocol-version", "2025-11-25")
            .send()
    }

    #[track_caller]
    fn call(&self, id: u32, arguments: Value) -> Value {
        let params = json!({"name": "exec", "arguments": arguments});
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        messages(self.post(&body).expect_status(200)).pop().unwrap()["result"].clone()
    }
}

#[test]
fn a_session_calls_tools_until_it_is_deleted() {
    let home = Home::new();
    let server = Server::start(&home);
    let session = Session::begin(server.client());
    let result = session.call(1, json!({"command": "echo 1"}));
    assert_eq!(result["structuredContent"]["stdout"], "1\n", "{result}");
    assert!(result["resultType"].is_null(), "older clients do not know this field: {result}");
    let delete = session.client.request("DELETE", "/mcp").header("mcp-session-id", &session.id);
    delete.send().expect_success();
    let body = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    session.post(&body).expect_status(404);
}

#[test]
fn a_notification_cancels_the_command() {
    let home = Home::new();
    let server = Server::start(&home);
    let session = Session::begin(server.client());
    let marker = home.path().join("marker");
    let command = format!("touch {}; sleep 1000", marker.display());
    let params = json!({"name": "exec", "arguments": {"command": command}});
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
    let connection = session
        .client
        .request("POST", "/mcp")
        .json(&body)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-session-id", &session.id)
        .start();
    wait_for("the command to start", || if marker.exists() { Ok(()) } else { Err("no marker") });
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 7, "reason": "test"}});
    session.post(&cancelled).expect_status(202);
    let client = &session.client;
    let terminal = client.get("/api/threads/main/terminal").expect(200);
    let history = format!("/api/terminals/{}/commands", terminal["terminal_id"].as_str().unwrap());
    wait_for("the cancellation", || {
        let command = client.get(&history).expect(200)["items"][0].clone();
        if command["status"] == "cancelled" { Ok(()) } else { Err(command) }
    });
    drop(connection);
}

#[test]
fn a_subscriber_is_notified_when_the_screen_changes() {
    let home = Home::new();
    let server = Server::start(&home);
    let session = Session::begin(server.client());
    let shell = session.call(1, json!({"command": "true"}));
    let terminal = shell["structuredContent"]["terminal_id"].as_str().unwrap();
    let uri = format!("stead://terminals/{terminal}/screen");
    let stream = session.client.request("GET", "/mcp").header("mcp-session-id", &session.id);
    let mut stream = stream.events();
    let body =
        json!({"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": uri}});
    let answer = messages(session.post(&body).expect_status(200)).pop().unwrap();
    assert!(answer["error"].is_null(), "{answer}");
    let typed = json!({"data": "echo typed\r"});
    session.client.post(&format!("/api/terminals/{terminal}/input"), typed).expect_success();
    let note: Value = serde_json::from_str(&stream.next_data()).unwrap();
    assert_eq!(note["method"], "notifications/resources/updated", "{note}");
    assert_eq!(note["params"]["uri"], uri.as_str());
}
