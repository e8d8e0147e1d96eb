//! The command line with a server that is missing or not ready.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use serde_json::json;

use harness::{Home, Person, Server, WAIT_TIMEOUT, run, wait_for};

/// Starts `stead` and collects the lines it writes to standard error.
fn start(home: &Home, arguments: &[&str]) -> (Child, mpsc::Receiver<String>) {
    let mut child = Command::new(harness::program())
        .args(arguments)
        .env("STEAD_HOME", home.path())
        .env_remove("STEAD_URL")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (sender, receiver) = mpsc::channel();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    (child, receiver)
}

/// Waits for the exit code.
#[track_caller]
fn code(mut child: Child) -> Option<i32> {
    let status =
        wait_for("the program to exit", || child.try_wait().unwrap().ok_or("still running"));
    status.code()
}

/// Answers each request with the next of these responses, then repeats the last. Sends the number of
/// requests so far for each.
fn stand_in(answers: &'static [&'static str]) -> (String, mpsc::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            if sender.send(number + 1).is_err() {
                return;
            }
            let answer = answers.get(number).or(answers.last()).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (url, receiver)
}

const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 42\r\n\
    connection: close\r\n\r\n{\"code\":\"store_unavailable\",\"detail\":\"no\"}";
const LATER: &str = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\ncontent-length: 37\r\n\
    connection: close\r\n\r\n{\"code\":\"overloaded\",\"detail\":\"full\"}";
const REFUSED: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 39\r\n\
    connection: close\r\n\r\n{\"code\":\"not_found\",\"detail\":\"no such\"}";

#[test]
fn exec_without_a_server_fails_without_waiting() {
    let home = Home::new();
    let (child, lines) = start(&home, &["exec", "--url", "http://127.0.0.1:1", "--", "true"]);
    let started = Instant::now();
    assert_eq!(code(child), Some(125));
    assert!(started.elapsed() < Duration::from_secs(30), "it waited");
    let stderr: Vec<String> = lines.iter().collect();
    assert_eq!(stderr.len(), 1, "{stderr:?}");
    assert!(stderr[0].starts_with("stead: no server at 127.0.0.1:1; start one with `stead serve`"));
}

#[test]
fn a_slow_request_shows_on_a_terminal_that_it_waits() {
    let home = Home::new();
    // Accepts connections and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    for command in [&["thread", "ls", "--url", &*url][..], &["exec", "--url", &*url, "--", "true"]]
    {
        let person = Person::run(&home, command);
        person.sees("waiting for the server, 1 s");
    }
}

#[test]
fn exec_repeats_a_503_only_if_the_server_asks_for_it() {
    let home = Home::new();
    let (url, requests) = stand_in(&[UNAVAILABLE]);
    let (child, lines) = start(&home, &["exec", "--url", &url, "--", "true"]);
    assert_eq!(code(child), Some(125));
    assert_eq!(lines.iter().collect::<Vec<_>>(), ["stead: no (store_unavailable, 503)"]);
    assert_eq!(requests.try_iter().count(), 1);

    let (url, requests) = stand_in(&[LATER, REFUSED]);
    let (child, lines) = start(&home, &["exec", "--url", &url, "--", "true"]);
    assert_eq!(code(child), Some(125));
    assert_eq!(
        lines.iter().collect::<Vec<_>>(),
        ["stead: waiting; the server asks to try again: full", "stead: no such (not_found, 404)"]
    );
    assert_eq!(requests.try_iter().count(), 2);
}

#[test]
fn exec_reports_the_command_that_it_waits_for() {
    let home = Home::new();
    let server = Server::start(&home);
    let gate = home.path().join("gate");
    let first = format!("until [ -e {} ]; do sleep 0.05; done", gate.display());
    let (first_child, _) = start(&home, &["exec", "--", &first]);
    let client = server.client();
    wait_for("the first command to run", || {
        let threads = client.get("/api/threads/main/terminal");
        let Some(terminal) = threads.json()["terminal_id"].as_str().map(str::to_owned) else {
            return Err(threads.text());
        };
        let commands = client.get(&format!("/api/terminals/{terminal}/commands")).expect(200);
        if commands["items"][0]["status"] == "running" { Ok(()) } else { Err(commands.to_string()) }
    });
    let (second, lines) = start(&home, &["exec", "--", "true"]);
    let stderr = lines.recv_timeout(WAIT_TIMEOUT).unwrap();
    let expected = format!("stead: waiting for `{first}`, which runs in this terminal (cmd_");
    assert!(stderr.starts_with(&expected), "{stderr}");
    fs::write(&gate, "").unwrap();
    assert_eq!((code(first_child), code(second)), (Some(0), Some(0)));
    // There is no notice about a command that has started.
    assert_eq!(lines.iter().count(), 0);
}

#[test]
fn exec_reports_that_it_waits_for_a_program_in_the_foreground() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    client.post("/api/threads/main/exec", json!({"command": "true"})).expect(200);
    let terminal = client.get("/api/threads/main/terminal").expect(200)["terminal_id"].clone();
    let terminal = format!("/api/terminals/{}", terminal.as_str().unwrap());
    let input = json!({"data": "echo REA''DY; cat\r"});
    client.post(&format!("{terminal}/input"), input).expect_success();
    wait_for("the program", || {
        let shown = client.get(&format!("{terminal}/snapshot?format=text")).text();
        if shown.contains("READY") { Ok(()) } else { Err(shown) }
    });
    let (child, lines) = start(&home, &["exec", "--", "true"]);
    let stderr = lines.recv_timeout(WAIT_TIMEOUT).unwrap();
    let expected =
        "stead: waiting for the program in the foreground of this terminal; `stead attach";
    assert!(stderr.starts_with(expected), "{stderr}");
    client.post(&format!("{terminal}/input"), json!({"data": "\u{3}"})).expect_success();
    assert_eq!(code(child), Some(0));
}

#[test]
fn attach_creates_a_thread_only_if_asked_and_ends_with_its_input() {
    let home = Home::new();
    let server = Server::start(&home);
    let attach = |arguments: &[&str]| {
        let (child, lines) = start(&home, &[&["attach"], arguments].concat());
        (code(child), lines.iter().collect::<Vec<_>>().join("\n"))
    };
    let (ended, stderr) = attach(&["typo"]);
    assert_eq!(ended, Some(125));
    assert_eq!(stderr, "stead: no thread \"typo\"; `stead attach --create typo` creates it");
    assert_eq!(server.client().get("/api/threads/typo").problem(404), "not_found");
    let (ended, stderr) = attach(&["--create", "typo"]);
    assert_eq!(ended, Some(0), "{stderr}");
    assert_eq!(attach(&["typo"]).0, Some(0));
    let output = run(&["attach", "typo"], &[("STEAD_HOME", home.path().to_str().unwrap())]);
    assert!(!output.stdout.is_empty(), "the screen is drawn before the end");
}
