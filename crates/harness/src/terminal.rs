//! Terminals and their output.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::{Client, Event, wait_for};

/// Opens a terminal that runs `cmd` or the shell.
pub fn open(client: &Client, thread: &str, body: Value) -> String {
    let made = client.post(&format!("/session/{thread}/pty"), body).expect(201);
    made["ptyID"].as_str().unwrap().to_owned()
}

/// Runs a command in a thread's default terminal.
pub fn exec(client: &Client, thread: &str, command: &str) -> Value {
    client.post(&format!("/api/threads/{thread}/exec"), json!({"command": command})).expect(200)
}

/// Returns the data of an event, with the offset of its first byte.
pub fn data(event: &Event) -> (u64, Vec<u8>) {
    let body = event.json();
    let bytes = match (&body["data"], &body["data_base64"]) {
        (Value::String(text), _) => text.clone().into_bytes(),
        (_, Value::String(text)) => BASE64_STANDARD.decode(text).unwrap(),
        _ => panic!("{body} carries nothing"),
    };
    (body["offset"].as_u64().unwrap(), bytes)
}

/// The text on a terminal's screen.
pub fn screen(client: &Client, id: &str) -> String {
    client.get(&format!("/api/terminals/{id}/snapshot?format=text")).expect_status(200).text()
}

/// Waits until the screen shows something.
pub fn shows(client: &Client, id: &str, text: &str) {
    wait_for(text, || {
        let seen = screen(client, id);
        if seen.contains(text) { Ok(()) } else { Err(seen) }
    });
}
