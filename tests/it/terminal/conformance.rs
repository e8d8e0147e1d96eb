//! The hostile cases, byte by byte, against the real server. Ours are in `tests/conformance`; others
//! of the same form are run too where `STEAD_CASES` names a file.

use std::{path::PathBuf, time::Instant};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::harness::{Client, Home, Server};

fn case_files() -> Vec<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<PathBuf> = std::fs::read_dir(root.join("tests/conformance"))
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let given = std::env::var_os("STEAD_CASES")
        .map(PathBuf::from)
        .unwrap_or_else(|| root.join("../shared/conformance/exec_cases.json"));
    if given.exists() {
        files.push(given);
    } else {
        println!("skipped: no cases at {}", given.display());
    }
    files
}

#[test]
fn every_hostile_case_passes() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut failures = Vec::new();
    let mut count = 0;
    for file in case_files() {
        let text = std::fs::read_to_string(&file).unwrap();
        let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
        for case in &cases {
            count += 1;
            let name = case["name"].as_str().unwrap();
            let wrong = play(&server.client(), &home, &format!("case-{count}-{name}"), case);
            if !wrong.is_empty() {
                failures.push(format!("{name}: {}", wrong.join("; ")));
            }
        }
    }
    println!("{} of {count} cases passed", count - failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn play(client: &Client, home: &Home, thread: &str, case: &Value) -> Vec<String> {
    let directory = home.path().join("cases").join(thread);
    std::fs::create_dir_all(&directory).unwrap();
    let put = client.put(&format!("/api/threads/{thread}"), json!({"cwd": directory}));
    put.expect_status(201);
    let target = match case["shell"].as_str() {
        None => format!("/api/threads/{thread}/exec"),
        Some(shell) => {
            let mut body = json!({"shell": shell, "cwd": directory});
            if shell == "busybox" {
                body = json!({"cmd": ["busybox", "sh"], "cwd": directory});
            }
            let made = client.post(&format!("/api/threads/{thread}/terminals"), body).expect(201);
            format!("/api/terminals/{}/exec", made["terminal_id"].as_str().unwrap())
        }
    };
    let mut wrong = Vec::new();
    for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        let mut body = json!({"command": step["cmd"], "max_output_bytes": 64 << 20});
        for name in ["timeout_ms", "stdin", "env", "cwd"] {
            if !step[name].is_null() {
                body[name] = step[name].clone();
            }
        }
        let began = Instant::now();
        let answer = client.post(&target, body);
        let took = began.elapsed().as_millis() as u64;
        if answer.status != 200 {
            wrong.push(format!("step {index}: {} {}", answer.status, answer.text()));
            break;
        }
        check(&answer.json(), &step["expect"], took, index, &mut wrong);
    }
    client.delete(&format!("/api/threads/{thread}")).expect_status(204);
    wrong
}

fn stream(ran: &Value, name: &str) -> Vec<u8> {
    match &ran[name] {
        Value::String(text) => text.clone().into_bytes(),
        _ => BASE64_STANDARD.decode(ran[format!("{name}_base64")].as_str().unwrap()).unwrap(),
    }
}

fn check(ran: &Value, expect: &Value, took: u64, index: usize, wrong: &mut Vec<String>) {
    let (stdout, stderr) = (stream(ran, "stdout"), stream(ran, "stderr"));
    let contains = |all: &[u8], part: &Value| {
        let part = part.as_str().unwrap().as_bytes();
        all.windows(part.len()).any(|window| window == part)
    };
    for (name, value) in expect.as_object().unwrap() {
        let fits = match name.as_str() {
            "exit_code" | "timed_out" | "shell_restarted" => ran[name] == *value,
            "stdout" => Value::String(String::from_utf8_lossy(&stdout).into()) == *value,
            "stderr" => Value::String(String::from_utf8_lossy(&stderr).into()) == *value,
            "stdout_contains" => contains(&stdout, value),
            "stderr_contains" => contains(&stderr, value),
            "stdout_base64" => Value::String(BASE64_STANDARD.encode(&stdout)) == *value,
            "stdout_len" => json!(stdout.len()) == *value,
            "stderr_len" => json!(stderr.len()) == *value,
            "max_ms" => took <= value.as_u64().unwrap(),
            other => panic!("a case expects {other:?}, which nobody knows"),
        };
        if !fits {
            let head: String = ran.to_string().chars().take(400).collect();
            wrong.push(format!("step {index}: {name} is not {value}: {head} after {took} ms"));
        }
    }
}
