//! From the question to the answer, also across a kill of the server.

use serde_json::{Value, json};

use super::World;
use harness::wait_for;

fn open_count(world: &World) -> Value {
    world.client().get("/api/threads/t").expect(200)["open_handoffs"].clone()
}

#[test]
fn an_agent_gets_the_answer_of_a_person() {
    let world = World::new();
    let (client, target) = (world.client(), world.at("/handoffs"));
    let mut events = client.request("GET", "/api/events").events();
    let question = json!({"kind": "approval", "reason": "Deploy?", "options": ["now", "later"],
        "wait_ms": 60_000});
    let agent = client.clone();
    let waiting = std::thread::spawn(move || agent.post(&target, question).expect(201));
    let opened = events.until("handoff_opened").json();
    assert_eq!(
        (&opened["thread_id"], &opened["terminal_id"]),
        (&json!("t"), &json!(world.terminal))
    );
    let listed = client.get("/api/handoffs?status=open").expect(200)["items"][0].clone();
    assert_eq!(listed["handoff_id"], opened["handoff_id"]);
    assert_eq!(
        (&listed["reason"], &listed["options"]),
        (&json!("Deploy?"), &json!(["now", "later"]))
    );
    assert_eq!(open_count(&world), 1);
    assert_eq!(client.get("/api/threads").expect(200)["items"][0]["open_handoffs"], 1);

    let route = format!("/api/handoffs/{}", opened["handoff_id"].as_str().unwrap());
    let answer = format!("{route}/answer");
    for (body, pointer) in [
        (json!({}), "/approve"),
        (json!({"approve": true}), "/option"),
        (json!({"option": "never"}), "/option"),
        (json!({"secret": "x"}), "/secret"),
        (json!({"text": "x"}), "/approve"),
    ] {
        let refused = client.post(&answer, body);
        assert_eq!(refused.problem(400), "invalid_body");
        assert_eq!(refused.json()["errors"][0]["pointer"], pointer, "{}", refused.text());
    }
    let answered =
        client.post(&answer, json!({"option": "later", "text": "after lunch"})).expect(200);
    let expected = json!({"approve": true, "option": "later", "text": "after lunch"});
    assert_eq!((&answered["status"], &answered["answer"]), (&json!("answered"), &expected));
    let received = waiting.join().unwrap();
    assert_eq!(received, answered, "the agent and the person see the same");
    assert_eq!(events.until("handoff_answered").json()["handoff_id"], opened["handoff_id"]);
    assert_eq!(client.post(&answer, json!({"option": "now"})).problem(409), "conflict");
    assert_eq!(client.post(&format!("{route}/decline"), json!({})).problem(409), "conflict");
    assert_eq!(open_count(&world), 0);

    let route = world.ask(json!({"kind": "input", "reason": "Which branch?"}));
    let declined = client.post(&format!("{route}/decline"), json!({"text": "no idea"})).expect(200);
    assert_eq!(
        (&declined["status"], &declined["answer"]),
        (&json!("declined"), &json!({"text": "no idea"}))
    );
    events.until("handoff_declined");
    let route = world.ask(json!({"kind": "input", "reason": "Which branch?"}));
    let answered = client.post(&format!("{route}/answer"), json!({"text": "main"})).expect(200);
    assert_eq!(answered["answer"], json!({"text": "main"}));
    assert_eq!(client.get("/api/handoffs").expect(200)["items"].as_array().unwrap().len(), 3);
    assert_eq!(client.get("/api/handoffs?thread_id=u").expect(200)["items"], json!([]));
    assert_eq!(client.get("/api/handoffs/handoff_x").problem(404), "not_found");
}

#[test]
fn open_hand_offs_survive_a_kill_and_expire() {
    let mut world = World::new();
    let lasting = world.ask(json!({"kind": "approval", "reason": "Deploy?"}));
    let short = world.ask(json!({"kind": "approval", "reason": "Now?", "timeout_ms": 1500}));
    world.server.kill_and_start(&world.home);
    let client = world.client();
    let expired = client.get(&format!("{short}?wait_ms=60000")).expect(200);
    assert_eq!(expired["status"], "expired", "{expired}");
    assert!(expired.get("answer").is_none() && expired["settled_at"].is_string(), "{expired}");
    let late = client.post(&format!("{short}/answer"), json!({"approve": true}));
    assert_eq!(late.problem(409), "conflict");
    assert_eq!(client.get(&format!("{lasting}?wait_ms=1")).expect(200)["status"], "open");
    let answered = client.post(&format!("{lasting}/answer"), json!({"approve": false})).expect(200);
    world.server.kill_and_start(&world.home);
    assert_eq!(world.client().get(&lasting).expect(200), answered);
}

#[test]
fn a_caller_that_disconnects_changes_nothing() {
    let world = World::new();
    let client = world.client();
    let body = json!({"kind": "input", "reason": "Which?", "wait_ms": 60_000});
    let stream = client.request("POST", &world.at("/handoffs")).json(&body).start();
    let items = wait_for("the hand-off", || {
        let items = client.get("/api/handoffs").expect(200)["items"].clone();
        if items[0].is_object() { Ok(items) } else { Err(items) }
    });
    drop(stream);
    let route = format!("/api/handoffs/{}", items[0]["handoff_id"].as_str().unwrap());
    let waiting = client.request("GET", &format!("{route}?wait_ms=60000")).start();
    drop(waiting);
    assert_eq!(client.get(&route).expect(200)["status"], "open");
    client.post(&format!("{route}/answer"), json!({"text": "this"})).expect(200);
}

#[test]
fn a_hand_off_is_deleted_with_its_terminal() {
    let world = World::new();
    let client = world.client();
    let other = client.post("/api/threads/t/terminals", json!({})).expect(201);
    let other = format!("/api/terminals/{}", other["terminal_id"].as_str().unwrap());
    let question = json!({"kind": "input", "reason": "Which?"});
    let asked = client.post(&format!("{other}/handoffs"), question).expect(201);
    let route = format!("/api/handoffs/{}", asked["handoff_id"].as_str().unwrap());
    let (agent, waited) = (client.clone(), format!("{route}?wait_ms=60000"));
    let waiting = std::thread::spawn(move || agent.get(&waited));
    client.delete(&other).expect_status(204);
    assert_eq!(waiting.join().unwrap().problem(404), "not_found");
    assert_eq!(client.get(&route).problem(404), "not_found");
    assert_eq!(open_count(&world), 0);
}

#[test]
fn questions_are_checked_and_bounded() {
    let world = World::new();
    let (client, target) = (world.client(), world.at("/handoffs"));
    for (body, pointer) in [
        (json!({"kind": "input", "reason": ""}), "/reason"),
        (json!({"kind": "input", "reason": "a\u{1b}b"}), "/reason"),
        (json!({"kind": "secret", "reason": "r", "options": ["a"]}), "/options"),
        (json!({"kind": "input", "reason": "r", "options": ["a", "a"]}), "/options/1"),
        (json!({"kind": "input", "reason": "r", "options": [""]}), "/options/0"),
        (json!({"kind": "input", "reason": "r", "timeout_ms": 0}), "/timeout_ms"),
        (json!({"kind": "input", "reason": "r", "timeout_ms": 2_592_000_001u64}), "/timeout_ms"),
        (json!({"kind": "input", "reason": "r", "wait_ms": 60_001}), "/wait_ms"),
        (json!({"kind": "input"}), "/reason"),
    ] {
        let refused = client.post(&target, body);
        assert_eq!(refused.problem(400), "invalid_body");
        assert_eq!(refused.json()["errors"][0]["pointer"], pointer, "{}", refused.text());
    }
    let waited = client.get("/api/handoffs/handoff_0198c3c1f0e47d1c8f9e2a3b4c5d6e7f?wait_ms=60001");
    assert_eq!(waited.problem(400), "invalid_query");
    let question = json!({"kind": "input", "reason": "Which?"});
    for _ in 0..16 {
        world.ask(question.clone());
    }
    assert_eq!(client.post(&target, question.clone()).problem(429), "too_many_requests");
    let first = client.get("/api/handoffs").expect(200)["items"][0]["handoff_id"].clone();
    let decline = format!("/api/handoffs/{}/decline", first.as_str().unwrap());
    client.request("POST", &decline).send().expect(200);
    let keyed =
        || client.request("POST", &target).json(&question).header("idempotency-key", "k").send();
    assert_eq!(keyed().expect(201), keyed().expect(201), "the same key opens one hand-off");
}
