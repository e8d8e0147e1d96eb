//! Notifications of open hand-offs by a signed POST.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    sync::mpsc,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::World;
use harness::{Home, WAIT_TIMEOUT, database, run, wait_for};

const KEY: &str = "key of the signatures";

/// A request that the webhook received.
struct Notification {
    timestamp: String,
    signature: String,
    body: String,
}

/// Answers each request with the next of these statuses, then repeats the last.
fn webhook(statuses: &'static [&'static str]) -> (String, mpsc::Receiver<Notification>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut timestamp, mut signature, mut length) = (String::new(), String::new(), 0);
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap() > 2 {
                let (name, value) = line.trim_end().split_once(": ").unwrap_or_default();
                match name.to_ascii_lowercase().as_str() {
                    "stead-timestamp" => timestamp = value.to_owned(),
                    "stead-signature" => signature = value.to_owned(),
                    "content-length" => length = value.parse().unwrap(),
                    _ => {}
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let body = String::from_utf8(body).unwrap();
            let status = statuses.get(number).or(statuses.last()).unwrap();
            let head =
                format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            if sender.send(Notification { timestamp, signature, body }).is_err() {
                return;
            }
        }
    });
    (url, receiver)
}

/// The signature as a receiver computes it (RFC 2104).
fn signed(timestamp: &str, body: &str) -> String {
    let mut block = [0; 64];
    block[..KEY.len()].copy_from_slice(KEY.as_bytes());
    let text = format!("{timestamp}.{body}");
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text);
    let outer = Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c));
    let code = outer.chain_update(inner.finalize()).finalize();
    format!("v1={}", code.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

#[test]
fn the_webhook_is_notified_until_it_accepts_also_by_the_next_server() {
    let (url, received) = webhook(&["500 Internal Server Error", "204 No Content"]);
    let setting = format!("notify.webhook={url}");
    let arguments = ["--set", setting.as_str()];
    let environment = [("STEAD_NOTIFY_SECRET", KEY)];
    let mut world = World::with(&arguments, &environment);
    let route = world.ask(json!({"kind": "approval", "reason": "Deploy?", "options": ["yes"]}));
    let first = received.recv_timeout(WAIT_TIMEOUT).unwrap();
    world.server.kill_and_start_as(&world.home, &arguments, &environment);
    let second = received.recv_timeout(WAIT_TIMEOUT).unwrap();
    for notification in [&first, &second] {
        assert_eq!(notification.signature, signed(&notification.timestamp, &notification.body));
    }
    let body: Value = serde_json::from_str(&second.body).unwrap();
    assert_eq!(first.body, second.body);
    assert_eq!(body["type"], "handoff_opened");
    assert!(route.ends_with(body["handoff_id"].as_str().unwrap()), "{body}");
    assert_eq!((&body["kind"], &body["reason"]), (&json!("approval"), &json!("Deploy?")));
    assert_eq!((&body["thread_id"], &body["terminal_id"]), (&json!("t"), &json!(world.terminal)));
    wait_for("the record of the notification", || {
        let row = database(world.home.path());
        let notice: String =
            row.query_row("SELECT notice FROM handoffs", [], |row| row.get(0)).unwrap();
        if notice == "delivered" { Ok(()) } else { Err(notice) }
    });
    let other = world.ask(json!({"kind": "input", "reason": "Which?"}));
    let third = received.recv_timeout(WAIT_TIMEOUT).unwrap();
    let body: Value = serde_json::from_str(&third.body).unwrap();
    assert!(other.ends_with(body["handoff_id"].as_str().unwrap()), "{body}");
}

#[test]
fn a_webhook_needs_a_secret() {
    let home = Home::new();
    let setting = "notify.webhook=http://127.0.0.1:1/";
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--set", setting];
    let output = run(&arguments, &[("STEAD_HOME", home.path().to_str().unwrap())]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stderr.contains("notify.secret"), "{stderr}");
}
