//! Lists over everything: sessions, terminals, projects by the beginning of their id.

use serde_json::{Value, json};

use harness::{Client, Home, Server};

fn items(client: &Client, target: &str) -> Vec<Value> {
    client.get(target).expect(200)["items"].as_array().unwrap().clone()
}

#[test]
fn sessions_and_terminals_of_all_threads_are_listed_by_status() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    for thread in ["a", "b"] {
        let target = format!("/api/threads/{thread}/exec");
        client.post(&target, json!({"command": "true"})).expect(200);
    }
    client.post("/api/threads/b/session/close", json!({})).expect(200);
    let threads = |target: &str| -> Vec<String> {
        let of = |item: &Value| item["thread_id"].as_str().unwrap().to_owned();
        items(&client, target).iter().map(of).collect()
    };
    assert_eq!(threads("/api/sessions"), ["b", "a"]);
    assert_eq!(threads("/api/sessions?status=active"), ["a"]);
    assert_eq!(threads("/api/sessions?status=closed"), ["b"]);
    assert_eq!(threads("/api/sessions?status=expired"), [""; 0]);
    let first = client.get("/api/sessions?limit=1").expect(200);
    let next = first["next_cursor"].as_str().unwrap();
    assert_eq!(threads(&format!("/api/sessions?limit=1&cursor={next}")), ["a"]);
    client.get("/api/sessions?status=gone").expect(400);

    assert_eq!(threads("/api/terminals"), ["a", "b"]);
    assert_eq!(threads("/api/terminals?thread_id=b"), ["b"]);
    assert_eq!(threads("/api/terminals?thread_id=a&status=live"), ["a"]);
    assert_eq!(threads("/api/terminals?status=exited"), [""; 0]);
    let first = client.get("/api/terminals?limit=1").expect(200);
    let next = first["next_cursor"].as_str().unwrap();
    assert_eq!(threads(&format!("/api/terminals?limit=1&cursor={next}")), ["b"]);
    client.get("/api/terminals?status=gone").expect(400);
    let document = client.get("/openapi.json").expect(200);
    for path in ["/api/sessions", "/api/terminals"] {
        assert!(document["paths"][path]["get"].is_object(), "{path} is not documented");
    }
}

#[test]
fn projects_are_found_by_the_prefix_of_their_id() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    for prefix in ["lst-one", "lst-two", "other"] {
        client.post("/api/projects", json!({"prefix": prefix})).expect(201);
    }
    let found = |prefix: &str| items(&client, &format!("/api/projects?prefix={prefix}")).len();
    assert_eq!([found("lst"), found("lst-one"), found("st"), found("l%25")], [2, 1, 0, 0]);
}
