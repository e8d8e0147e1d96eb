//! Characters arrive whole, and events arrive compressed for clients that accept gzip.

use std::io::Read;

use serde_json::{Value, json};

use harness::{
    Client, Frame, Home, Server,
    terminal::{data, open},
    wait_for,
};

/// A terminal that has printed `A` and two of the three bytes of a dash; a line of input makes it
/// print the rest.
fn amid_a_character(client: &Client) -> String {
    let script = "stty -echo; printf 'A\\342\\200'; read x; printf '\\224B'; read y; exit 3";
    let id = open(client, "s", json!({"cmd": ["sh", "-c", script]}));
    wait_for("the first three bytes", || {
        let offset = client.get(&format!("/api/terminals/{id}")).expect(200)["offset"].clone();
        if offset == 3 { Ok(()) } else { Err(offset) }
    });
    id
}

fn type_line(client: &Client, id: &str) {
    client.post(&format!("/api/terminals/{id}/input"), json!({"data": "\n"})).expect(204);
}

#[test]
fn a_snapshot_withholds_a_character_that_is_being_received() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let id = amid_a_character(&client);
    let whole = |shown: &Value| {
        let text = shown["data"].as_str().unwrap();
        assert!(text.contains('A') && !text.contains('\u{fffd}'), "{text:?}");
        assert_eq!(shown["offset"], 1);
    };
    whole(&client.get(&format!("/api/terminals/{id}/snapshot")).expect(200));
    let mut events = client.request("GET", &format!("/api/terminals/{id}/stream")).events();
    whole(&events.until("snapshot").json());
    let mut socket = client.socket(&format!("/api/terminals/{id}/ws?mode=viewer"), &[]).unwrap();
    let head = loop {
        match socket.next() {
            Frame::Control(head) if head["type"] == "snapshot" => break head,
            Frame::Control(_) => {}
            other => panic!("{other:?} where a picture is announced"),
        }
    };
    let Frame::Bytes(picture) = socket.next() else { panic!("no picture after {head}") };
    assert_eq!((&head["offset"], &head["bytes"]), (&json!(1), &json!(picture.len())));
    String::from_utf8(picture).unwrap();

    type_line(&client, &id);
    let mut seen = Vec::new();
    while seen.len() < "—B".len() {
        let (offset, bytes) = data(&events.until("data"));
        assert_eq!(offset, 1 + seen.len() as u64);
        seen.extend(bytes);
    }
    assert_eq!(String::from_utf8(seen).unwrap(), "—B");
    let mut seen = String::new();
    while seen.len() < "—B".len() {
        match socket.next() {
            Frame::Bytes(bytes) => seen += std::str::from_utf8(&bytes).unwrap(),
            Frame::Control(_) => {}
            Frame::Closed => panic!("closed after {seen:?}"),
        }
    }
    assert_eq!(seen, "—B");
}

#[test]
fn events_are_compressed_for_a_client_that_accepts_gzip() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let id = amid_a_character(&client);
    let target = format!("/api/terminals/{id}/stream");
    let answer = std::thread::scope(|scope| {
        let request = client.request("GET", &target).header("accept-encoding", "gzip");
        let stream = scope.spawn(move || request.send());
        wait_for("the client to be there", || {
            let clients =
                client.get(&format!("/api/terminals/{id}")).expect(200)["clients"].clone();
            if clients == 1 { Ok(()) } else { Err(clients) }
        });
        type_line(&client, &id);
        type_line(&client, &id);
        stream.join().unwrap()
    });
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&*answer.body).read_to_string(&mut text).unwrap();
    let at =
        |name: &str| text.find(&format!("event: {name}\n")).unwrap_or_else(|| panic!("{text}"));
    assert!(at("snapshot") < at("data") && at("data") < at("exit"), "{text}");
}
