//! The hostile cases, byte by byte, against the real server. Ours are in `tests/conformance`; others
//! of the same form are run too where `STEAD_CASES` names a file.

use std::{fs, path::PathBuf, thread, time::Instant};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::kubernetes::server_of_tests;
use crate::vendor::{COMMANDERS, KINDS, Kind, Vendor};
use harness::{
    Client, Home, Server, engines, has_sandboxes,
    terminal::{data, exec},
};

fn case_files() -> Vec<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<PathBuf> = fs::read_dir(root.join("tests/conformance"))
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

/// What happens during a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// A client watches the terminal.
    Watcher,
    /// The server is killed between two steps and started again.
    Kills,
    /// Each is in a sandbox of its own.
    Sandbox,
    /// All are in one container, each on a terminal of its own.
    Container,
    /// All are in one sandbox of a vendor, the same.
    Cloud,
    /// The same, and the vendor only runs commands.
    Commands,
    /// All are in one pod of Kubernetes.
    Pod,
}

/// Cases that cannot pass where each command has a shell of its own and no PTY, with the reason.
const COMMANDS_ONLY: &[(&str, &[&str])] = &[
    (
        "jobs, descriptors and the number of a shell end with it",
        &[
            "bang_pid_persists",
            "bg_job_exit_code_later",
            "fd_persists",
            "jobs_are_known",
            "same_shell_pid",
        ],
    ),
    (
        "a shell with the user's EXIT trap that a signal ends does not report its state",
        &["exit_trap_and_interrupt"],
    ),
    (
        "the changes of a command that exits its shell are kept there, including the previous directory",
        &["oldpwd_unset_after_restart"],
    ),
];

/// The cases of a short run where only commands run. None of them depends on time.
const COMMANDS_SHORT: &[&str] = &[
    "unset_function",
    "sparse_array_survives",
    "negated_status",
    "kill_term_self",
    "unclosed_brace",
    "trailing_backslash",
    "stdout_of_subshells",
    "stdin_of_loop",
    "builtins_as_functions",
    "a_state_grows_larger_than_a_pipe",
    "export_persists",
    "shopt_persists",
    "set_e_then_fail",
    "script_400_lines",
    "spoof_osc133",
    "cat_gets_eof",
    "user_exit_trap_not_fired",
    "exit_trap_stderr_too",
    "err_trap_runs_once",
    "errexit_kept_while_alive",
    "enable_n_declare",
    "enable_n_dot",
    "aliases_of_our_words",
    "keyword_and_allexport",
    "ulimit_files",
    "umask_ulimit_survive",
    "seconds_random_untouched",
    "debug_trap_runs_for_commands_alone",
];

/// Whether a case can be played where only commands run.
fn needs_no_terminal(case: &Value) -> bool {
    let name = case["name"].as_str().unwrap();
    let shell = case["shell"].as_str().unwrap_or("bash");
    let known = COMMANDS_ONLY.iter().any(|(_, names)| names.contains(&name));
    // There is no zsh, and which program is `sh` is the sandbox's choice.
    !known && shell == "bash"
}

/// All cases. A short run plays a different part of them in each surrounding.
fn cases(beside: Beside) -> Vec<Value> {
    let mut all = Vec::new();
    for file in case_files() {
        let text = fs::read_to_string(&file).unwrap();
        all.extend(serde_json::from_str::<Vec<Value>>(&text).unwrap());
    }
    // One case, to reproduce its failure.
    if let Ok(name) = std::env::var("STEAD_CASE") {
        all.retain(|case| case["name"] == name);
        assert!(!all.is_empty(), "no case is called {name}");
        return all;
    }
    let (part, of) = match beside {
        _ if std::env::var_os("STEAD_SOAK").is_some() => (0, 1),
        Beside::Nothing | Beside::Sandbox | Beside::Pod => (0, 1),
        Beside::Watcher => (0, 8),
        Beside::Kills => (4, 8),
        Beside::Container => (0, 2),
        Beside::Cloud => (2, 8),
        Beside::Commands => {
            all.retain(|case| COMMANDS_SHORT.contains(&case["name"].as_str().unwrap()));
            (0, 1)
        }
    };
    let fits = |case: &Value| beside != Beside::Commands || needs_no_terminal(case);
    let mine = all.into_iter().enumerate().filter(|(nth, _)| nth % of == part);
    mine.map(|(_, case)| case).filter(fits).collect()
}

/// Default sandboxes without a network, which no case needs.
const SANDBOXED: &[&str] = &["--provider", "namespace", "--set", "sandbox.egress=none"];

fn rounds() -> usize {
    if std::env::var_os("STEAD_SOAK").is_some() { 3 } else { 1 }
}

#[test]
fn every_hostile_case_passes() {
    all_pass(Beside::Nothing);
}

#[test]
fn hostile_cases_pass_while_a_client_watches() {
    all_pass(Beside::Watcher);
}

#[test]
fn hostile_cases_pass_while_the_server_is_killed_between_steps() {
    all_pass(Beside::Kills);
}

#[test]
fn every_hostile_case_passes_in_a_sandbox() {
    if has_sandboxes() {
        all_pass(Beside::Sandbox);
    }
}

#[test]
fn hostile_cases_pass_in_a_container() {
    for (_, engine) in engines() {
        let home = Home::new();
        let host = format!("docker.host={}", engine.address());
        let arguments = ["--provider", "docker", "--set", &host, "--set", "sandbox.egress=none"];
        let mut server = Server::start_with(&home, &arguments);
        exec(&server.client(), "ground", "true");
        let lease = server.client().get("/api/threads/ground/lease").expect(200);
        all_pass_on(&mut server, &home, Beside::Container, &lease["lease_id"]);
        server.client().delete("/api/threads/ground").expect_success();
    }
}

/// Whether the environment variable `STEAD_VENDOR`, which limits a long run, allows this vendor.
fn is_chosen(kind: &Kind) -> bool {
    std::env::var("STEAD_VENDOR").map_or(true, |name| name == kind.name())
}

#[test]
fn hostile_cases_pass_in_a_vendors_sandbox() {
    for kind in KINDS.into_iter().filter(is_chosen) {
        let (vendor, home) = (Vendor::start(), Home::new());
        let mut server = vendor.user(kind, &home);
        exec(&server.client(), "ground", "true");
        let lease = server.client().get("/api/threads/ground/lease").expect(200);
        all_pass_on(&mut server, &home, Beside::Cloud, &lease["lease_id"]);
        server.client().delete("/api/threads/ground").expect_success();
    }
}

#[test]
fn every_hostile_case_passes_in_a_pod() {
    let home = Home::new();
    let Some(mut server) = server_of_tests(&home) else { return };
    exec(&server.client(), "ground", "true");
    let lease = server.client().get("/api/threads/ground/lease").expect(200);
    all_pass_on(&mut server, &home, Beside::Pod, &lease["lease_id"]);
    server.client().delete("/api/threads/ground").expect_success();
}

#[test]
fn hostile_cases_pass_where_only_commands_run() {
    for kind in COMMANDERS.into_iter().filter(is_chosen) {
        let Some(vendor) = Vendor::of(kind) else { continue };
        let home = Home::new();
        let mut server = vendor.commander(kind, vendor.address(), &home);
        exec(&server.client(), "ground", "true");
        let lease = server.client().get("/api/threads/ground/lease").expect(200);
        all_pass_on(&mut server, &home, Beside::Commands, &lease["lease_id"]);
        server.client().delete("/api/threads/ground").expect_success();
    }
}

/// How much longer than its limit a case may take: an unoptimized server needs more than ten seconds of a CPU for an
/// answer with 64 MiB of output. A command whose timeout has no effect takes longer still.
const UNOPTIMIZED_FACTOR: u64 = 6;

fn all_pass(beside: Beside) {
    let home = Home::new();
    let mut server = match beside {
        Beside::Sandbox => Server::start_with(&home, SANDBOXED),
        _ => Server::start(&home),
    };
    all_pass_on(&mut server, &home, beside, &Value::Null);
}

/// Some cases count the processes of the whole machine, so all runs of them take this lock, whichever process
/// they are in.
fn machine_lock() -> fs::File {
    let lock = fs::File::create(std::env::temp_dir().join("stead-conformance.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    lock
}

/// All cases on a server; those of a container share its lease.
fn all_pass_on(server: &mut Server, home: &Home, beside: Beside, lease: &Value) {
    let _lock = machine_lock();
    let mut failures = Vec::new();
    let mut count = 0;
    for case in (0..rounds()).flat_map(|_| cases(beside)) {
        count += 1;
        let name = case["name"].as_str().unwrap();
        let thread = format!("case-{count}-{name}");
        let wrong = play(server, home, &thread, &case, (beside, lease));
        if !wrong.is_empty() {
            failures.push(format!("{name}: {}", wrong.join("; ")));
            // Printed at once, because a long run may be interrupted.
            println!("{}", failures[failures.len() - 1]);
        }
    }
    println!("{} of {count} cases passed beside {beside:?}", count - failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn play(
    server: &mut Server,
    home: &Home,
    thread: &str,
    case: &Value,
    (beside, lease): (Beside, &Value),
) -> Vec<String> {
    let client = server.client();
    let directory = match beside {
        // Empty in each.
        Beside::Sandbox => PathBuf::from("/srv"),
        Beside::Container => {
            let made = exec(&client, "ground", &format!("mkdir -p '/srv/{thread}'"));
            assert_eq!(made["exit_code"], 0, "{made}");
            PathBuf::from("/srv").join(thread)
        }
        Beside::Pod => {
            let made = exec(&client, "ground", &format!("mkdir -p '/tmp/cases/{thread}'"));
            assert_eq!(made["exit_code"], 0, "{made}");
            PathBuf::from("/tmp/cases").join(thread)
        }
        Beside::Nothing | Beside::Watcher | Beside::Kills | Beside::Cloud | Beside::Commands => {
            let directory = home.path().join("cases").join(thread);
            fs::create_dir_all(&directory).unwrap();
            directory
        }
    };
    let mut choices = json!({"cwd": directory});
    if !lease.is_null() {
        choices["lease_id"] = lease.clone();
    }
    client.put(&format!("/api/threads/{thread}"), choices).expect_status(201);
    let terminal = match case["shell"].as_str() {
        None => client.get(&format!("/api/threads/{thread}/terminal")).expect(200),
        Some(shell) => {
            let mut body = json!({"shell": shell, "cwd": directory});
            if shell == "busybox" {
                body = json!({"cmd": ["busybox", "sh"], "cwd": directory});
            }
            client.post(&format!("/api/threads/{thread}/terminals"), body).expect(201)
        }
    };
    let terminal = terminal["terminal_id"].as_str().unwrap();
    let _watcher = (beside == Beside::Watcher).then(|| watch(&client, terminal));
    let mut wrong = Vec::new();
    for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        if beside == Beside::Kills && index > 0 {
            server.kill_and_start(home);
        }
        // Each megabyte of kept output takes time at a vendor.
        let brief = beside == Beside::Commands && step["expect"]["stdout_len"].is_null();
        let max_bytes = if brief { 1 << 20 } else { 64 << 20 };
        let mut body = json!({"command": step["cmd"], "max_output_bytes": max_bytes});
        for name in ["timeout_ms", "stdin", "env", "cwd"] {
            if !step[name].is_null() {
                body[name] = step[name].clone();
            }
        }
        let began = Instant::now();
        let client = server.client().with_long_timeout();
        let answer = client.post(&format!("/api/terminals/{terminal}/exec"), body);
        let took = began.elapsed().as_millis() as u64;
        if answer.status != 200 {
            wrong.push(format!("step {index}: {} {}", answer.status, answer.text()));
            break;
        }
        let mut expect = step["expect"].clone();
        if beside == Beside::Commands {
            // The latency of a vendor is not under test.
            expect.as_object_mut().unwrap().remove("max_ms");
        }
        check(&answer.json(), &expect, took, index, &mut wrong);
    }
    server.client().delete(&format!("/api/threads/{thread}")).expect_status(204);
    wrong
}

/// Reads a terminal's stream until the terminal is deleted, and checks that no byte is missing.
fn watch(client: &Client, terminal: &str) -> thread::JoinHandle<()> {
    let mut events = client.request("GET", &format!("/api/terminals/{terminal}/stream")).events();
    thread::spawn(move || {
        let mut next = None;
        while let Some(event) = events.next() {
            match event.name.as_str() {
                "snapshot" => next = event.json()["offset"].as_u64(),
                "data" => {
                    let (offset, bytes) = data(&event);
                    assert!(next.is_none_or(|next| next == offset), "a gap before {offset}");
                    next = Some(offset + bytes.len() as u64);
                }
                _ => {}
            }
        }
    })
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
            "max_ms" => took <= UNOPTIMIZED_FACTOR * value.as_u64().unwrap(),
            other => panic!("a case has the unknown expectation {other:?}"),
        };
        if !fits {
            let head: String = ran.to_string().chars().take(400).collect();
            wrong.push(format!("step {index}: {name} is not {value}: {head} after {took} ms"));
        }
    }
}
