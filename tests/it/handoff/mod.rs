//! Hand-offs: an agent asks a person, over HTTP and on the command line.

mod life;
mod line;
mod secret;
mod webhook;

use serde_json::{Value, json};

use harness::{Client, Home, Server};

/// A server with a thread `t` and its terminal.
struct World {
    home: Home,
    server: Server,
    terminal: String,
}

impl World {
    fn new() -> World {
        World::with(&[], &[])
    }

    fn with(arguments: &[&str], environment: &[(&str, &str)]) -> World {
        let home = Home::new();
        let server = Server::start_as(&home, arguments, environment);
        let client = server.client();
        client.put("/api/threads/t", json!({})).expect_success();
        let terminal = client.get("/api/threads/t/terminal").expect(200);
        let terminal = terminal["terminal_id"].as_str().unwrap().to_owned();
        World { home, server, terminal }
    }

    fn client(&self) -> Client {
        self.server.client()
    }

    fn at(&self, end: &str) -> String {
        format!("/api/terminals/{}{end}", self.terminal)
    }

    /// Opens a hand-off; returns its route.
    fn ask(&self, body: Value) -> String {
        let asked = self.client().post(&self.at("/handoffs"), body).expect(201);
        format!("/api/handoffs/{}", asked["handoff_id"].as_str().unwrap())
    }
}
