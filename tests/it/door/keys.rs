//! `Idempotency-Key`.

use harness::{Answer, Home, Server};

fn link(server: &Server, key: &str, body: &[u8]) -> Answer {
    let request = server.client().request("POST", "/api/login-links");
    request.header("idempotency-key", key).body(body).send()
}

#[test]
fn the_same_key_and_body_gets_the_first_response() {
    let home = Home::new();
    let server = Server::start(&home);
    let first = link(&server, "a", b"");
    first.expect_status(201);
    let again = link(&server, "a", b"");
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_ne!(link(&server, "b", b"").body, first.body);
    assert_eq!(link(&server, "a", b"{}").problem(422), "key_reused");
    let elsewhere = server.client().request("POST", "/api/logout").header("idempotency-key", "a");
    assert_eq!(elsewhere.send().problem(422), "key_reused");
}

#[test]
fn the_response_is_the_same_after_the_server_was_killed() {
    let home = Home::new();
    let server = Server::start(&home);
    let first = link(&server, "a", b"");
    server.kill();
    let server = Server::start(&home);
    let again = link(&server, "a", b"");
    assert_eq!((again.status, &again.body), (201, &first.body));
}

#[test]
fn twenty_at_once_with_one_key_are_one_request() {
    let home = Home::new();
    let server = Server::start(&home);
    let bodies: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let ask = || scope.spawn(|| link(&server, "a", b"").expect_status(201).body.clone());
        let asked: Vec<_> = (0..20).map(|_| ask()).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(bodies.iter().all(|body| *body == bodies[0]));
}

#[test]
fn an_invalid_idempotency_key_is_reported() {
    let home = Home::new();
    let server = Server::start(&home);
    let answer = link(&server, &"x".repeat(256), b"");
    assert_eq!(answer.problem(400), "invalid_header");
    assert_eq!(answer.json()["errors"][0]["pointer"], "/idempotency-key");
}
