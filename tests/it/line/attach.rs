//! `stead attach` on a real terminal.

use serde_json::json;

use harness::{Home, Person, Server, wait_for};

/// The numbers of all marks `<n>` in the text, in order.
fn marks(text: &str) -> Vec<u32> {
    let pieces = text.split('<').skip(1);
    pieces.filter_map(|piece| piece.split_once('>')?.0.parse().ok()).collect()
}

fn start(home: &Home) -> Server {
    let server = Server::start(home);
    server.client().put("/api/threads/t", json!({"provider": "local"})).expect_success();
    server
}

#[test]
fn typed_commands_run_and_the_shell_survives_a_detach() {
    let home = Home::new();
    let _server = start(&home);
    let mut person = Person::run(&home, &["attach", "t"]);
    person.sees("Ctrl-\\ detaches");
    person.type_text("mark=7; echo \"<$((mark*6))>\"\r");
    person.sees("<42>");
    person.type_text("\x1c");
    person.sees("[detached; the shell keeps running]");
    assert_eq!(person.ends(), Some(0));

    let mut again = Person::run(&home, &["attach", "t"]);
    // The snapshot comes first: it shows the earlier contents of the screen.
    again.sees("<42>");
    again.type_text("echo \"<$((mark+1))>\"\r");
    again.sees("<8>");
}

#[test]
fn a_killed_server_causes_a_notice_but_loses_no_output() {
    let home = Home::new();
    let server = start(&home);
    let address = server.address;
    let mut person = Person::run(&home, &["attach", "t"]);
    person.sees("Ctrl-\\ detaches");
    person.type_text("for n in $(seq 1 400); do echo \"<$n>\"; sleep 0.01; done; echo all-done\r");
    person.sees("<50>");
    server.kill();
    person.sees("connection lost");
    let server = Server::start_at(&home, address);
    person.sees("<300>");
    server.kill();
    let _server = Server::start_at(&home, address);
    person.sees("<400>");
    person.sees("reconnected");
    let seen = person.seen();
    let typed = seen.find("all-done").unwrap();
    assert_eq!(marks(&seen[typed..]), (1..=400).collect::<Vec<_>>());
    person.type_text("\x1c");
    assert_eq!(person.ends(), Some(0));
}

#[test]
fn the_size_follows_the_users_terminal() {
    let home = Home::new();
    let server = start(&home);
    let person = Person::run(&home, &["attach", "t"]);
    let size = || {
        let terminal = server.client().get("/api/threads/t/terminals").expect(200);
        let terminal = &terminal["items"][0];
        (terminal["cols"].as_u64(), terminal["rows"].as_u64())
    };
    let wait = |cols, rows| {
        wait_for("the size", || {
            let seen = size();
            if seen == (Some(cols), Some(rows)) { Ok(()) } else { Err(seen) }
        });
    };
    person.sees("Ctrl-\\ detaches");
    wait(80, 24);
    person.resize(132, 40);
    wait(132, 40);
}

#[test]
fn the_exit_code_of_the_program_is_passed_on() {
    let home = Home::new();
    let _server = start(&home);
    let mut person = Person::run(&home, &["new", "-t", "t", "--", "sh", "-c", "read x; exit $x"]);
    person.sees("Ctrl-\\ detaches");
    person.type_text("7\r");
    person.sees("exited with status 7");
    assert_eq!(person.ends(), Some(7));
}

#[test]
fn a_key_shows_what_the_thread_does_and_who_has_control() {
    let home = Home::new();
    let _server = start(&home);
    let mut person = Person::run(&home, &["attach", "t"]);
    person.sees("Ctrl-^ shows the status");
    // It knows who has control before it clears the screen to show the terminal's.
    person.sees("\x1bc");
    person.type_text("\x1e");
    person.sees("[stead: t · idle · you have control]");
    // The key is no input: the shell does not see it.
    person.type_text("echo \"<$((6*7))>\"\r");
    person.sees("<42>");
    person.type_text("\x1c");
    assert_eq!(person.ends(), Some(0));
}
