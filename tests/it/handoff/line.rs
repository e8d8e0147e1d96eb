//! Hand-offs on the command line.

use std::{
    io::Write,
    process::{Child, Command, Output, Stdio},
};

use serde_json::{Value, json};

use super::World;
use harness::{Home, Person, wait_for};

fn start(home: &Home, arguments: &[&str], input: &str) -> Child {
    let mut child = Command::new(harness::program())
        .args(arguments)
        .env("STEAD_HOME", home.path())
        .env_remove("STEAD_URL")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child
}

fn stead(home: &Home, arguments: &[&str], input: &str) -> Output {
    start(home, arguments, input).wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until a hand-off is open; returns its id.
fn open(world: &World) -> String {
    wait_for("an open hand-off", || {
        let open = world.client().get("/api/handoffs?status=open").expect(200);
        open["items"][0]["handoff_id"].as_str().map(str::to_owned).ok_or(open)
    })
}

#[test]
fn a_script_asks_and_a_person_answers() {
    let world = World::new();
    let home = &world.home;
    assert_eq!(stdout(&stead(home, &["handoffs", "ls"], "")), "no open hand-offs\n");
    let question = ["handoff", "ask", "t", "--kind", "input", "--reason", "Which branch?"];
    let asking = start(home, &question, "");
    let id = open(&world);
    let listed: Value =
        serde_json::from_str(&stdout(&stead(home, &["handoffs", "ls", "--json"], ""))).unwrap();
    assert_eq!((&listed[0]["handoff_id"], &listed[0]["kind"]), (&json!(id), &json!("input")));
    let table = stdout(&stead(home, &["handoffs", "ls"], ""));
    assert!(table.contains("Which branch?") && table.starts_with("HANDOFF"), "{table}");
    stdout(&stead(home, &["handoffs", "answer", &id[..id.len() - 1]], "main\n"));
    assert_eq!(stdout(&asking.wait_with_output().unwrap()), "main\n");

    let approval = ["handoffs", "ask", "t", "--kind", "approval", "--reason", "Deploy?"];
    for (answer, status) in
        [(&["--approve"][..], Some(0)), (&["--reject", "--text", "not on a Friday"], Some(3))]
    {
        let asking = start(home, &approval, "");
        let id = open(&world);
        stdout(&stead(home, &[&["handoffs", "answer", &id], answer].concat(), ""));
        assert_eq!(asking.wait_with_output().unwrap().status.code(), status);
    }
    let asking = start(home, &approval, "");
    stdout(&stead(home, &["handoffs", "decline", &open(&world), "--text", "no"], ""));
    let declined = asking.wait_with_output().unwrap();
    assert_eq!((declined.status.code(), declined.stdout.as_slice()), (Some(3), &b"no\n"[..]));
    let timed = [&approval[..], &["--timeout", "1s", "--json"]].concat();
    let expired = stead(home, &timed, "");
    assert_eq!(expired.status.code(), Some(4), "{expired:?}");
    let detached = stdout(&stead(home, &[&approval[..], &["-d"]].concat(), ""));
    assert_eq!(detached.trim_end(), open(&world));
}

#[test]
fn a_secret_is_typed_without_echo_and_never_given_as_an_option() {
    let world = World::new();
    let client = world.client();
    let program = "bash -c 'IFS= read -rs -p \"Password: \" x </dev/tty; \
        printf \"\\ngot %s\\n\" \"$x\" >/dev/tty'";
    client.post(&world.at("/input"), json!({"data": format!("{program}\r")})).expect_success();
    wait_for("the question", || {
        let shown = client.get(&world.at("/snapshot?format=text")).text();
        if shown.matches("Password:").count() > 1 { Ok(()) } else { Err(shown) }
    });
    let route = world.ask(json!({"kind": "secret", "reason": "The test's password?"}));
    let id = route.rsplit('/').next().unwrap();
    let refused = stead(&world.home, &["handoffs", "answer", id, "--text", "hunter2"], "");
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && stderr.contains("never from an option"), "{stderr}");
    let mut person = Person::run(&world.home, &["handoffs", "answer", id]);
    person.sees("The test's password? ");
    person.type_text("hunter2\r");
    assert_eq!(person.ends(), Some(0), "{}", person.seen());
    assert!(!person.seen().contains("hunter2"), "{}", person.seen());
    wait_for("the program to get the secret", || {
        let shown = client.get(&world.at("/snapshot?format=text")).text();
        if shown.contains("got hunter2") { Ok(()) } else { Err(shown) }
    });
    // A pipe works, too; here no program asks any more.
    let route = world.ask(json!({"kind": "secret", "reason": "Again?"}));
    let id = route.rsplit('/').next().unwrap();
    wait_for("the prompt, where the terminal would show it", || {
        let refused = stead(&world.home, &["handoffs", "answer", id], "hunter2\n");
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        if stderr.contains("(echo_on, 409)") { Ok(()) } else { Err(stderr) }
    });
}
