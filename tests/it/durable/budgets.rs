//! Kernel limits per user are used up by other processes: the server works without the resource, or refuses
//! with its name.

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use harness::terminal::{exec, open, screen, shows};
use harness::{Home, Server, has_sandboxes};

/// Starts a server after `script` has prepared its view of the machine; prints the reason and returns `None`
/// where that is not permitted.
fn beneath(home: &Home, unshare: &str, script: &str) -> Option<Server> {
    let script = format!("{script} && exec \"$0\" \"$@\"");
    match Server::start_beneath(home, &["unshare", unshare, "sh", "-c", &script]) {
        Ok(server) => Some(server),
        Err(error) => {
            eprintln!("skipped: this process may not create a namespace: {error}");
            None
        }
    }
}

#[test]
fn files_are_watched_where_hosts_use_all_inotify_instances() {
    let home = Home::new();
    let few = "echo 16 > /proc/sys/user/max_inotify_instances";
    let Some(server) = beneath(&home, "-Ur", few) else { return };
    let client = server.client();
    for thread in ["a", "b", "c"] {
        assert_eq!(exec(&client, thread, "echo one")["stdout"], "one\n");
    }
    let watch = client.request("GET", "/api/threads/a/fs/watch?path=/workspace");
    let mut events = watch.events();
    assert_eq!(events.next().unwrap().name, "ready");
    exec(&client, "a", "touch new");
    assert_eq!(events.next().unwrap().name, "created");
}

#[test]
fn shells_run_commands_where_no_inotify_instance_is_left() {
    let home = Home::new();
    let none = "echo 0 > /proc/sys/user/max_inotify_instances";
    let Some(server) = beneath(&home, "-Ur", none) else { return };
    let client = server.client();
    assert_eq!(exec(&client, "t", "cd /usr; export A=1; echo first")["stdout"], "first\n");
    assert_eq!(exec(&client, "t", "echo $A; pwd; false")["stdout"], "1\n/usr\n");
    // Output to the command's own descriptors, and directly to the terminal.
    let receipt =
        exec(&client, "t", "echo to the screen > /dev/tty; echo out; echo err >&2; exit 3");
    assert_eq!(
        (&receipt["stdout"], &receipt["stderr"]),
        (&json!("out\n"), &json!("err\n")),
        "{receipt}"
    );
    assert_eq!(receipt["exit_code"], 3, "{receipt}");
    // The shell that ended is replaced by one with its state.
    assert_eq!(exec(&client, "t", "echo $A; pwd")["stdout"], "1\n/usr\n");
    // A watch says what there is too little of.
    let refused = client.get("/api/threads/t/fs/watch?path=/workspace");
    assert!(refused.text().contains("raise fs.inotify.max_user_instances"), "{}", refused.text());
    assert_eq!(refused.problem(503), "store_unavailable");
    let terminal = open(&client, "t", json!({}));
    let typed = json!({"data": "echo $((40+2))\r"});
    client.post(&format!("/api/terminals/{terminal}/input"), typed).expect_success();
    shows(&client, &terminal, "42");
    // A command that waits for the first prompt is shown behind it.
    for number in 0..5 {
        let thread = format!("new-{number}");
        assert_eq!(exec(&client, &thread, "echo one")["stdout"], "one\n");
        let terminal = client.get(&format!("/api/threads/{thread}/terminal")).expect(200);
        let id = terminal["terminal_id"].as_str().unwrap();
        shows(&client, id, "\none");
        let screen = screen(&client, id);
        assert!(
            screen.contains("$ echo one\none") || screen.contains("# echo one\none"),
            "{screen:?}"
        );
    }
}

#[test]
fn a_machine_without_pseudo_terminals_is_named_as_such() {
    let home = Home::new();
    let two = "mount -t devpts -o newinstance,ptmxmode=0666,max=2 devpts /dev/pts";
    let Some(server) = beneath(&home, "-m", two) else { return };
    let client = server.client();
    for _ in 0..2 {
        open(&client, "t", json!({"cmd": ["cat"]}));
    }
    let refused = client.post("/api/threads/t/terminals", json!({"cmd": ["cat"]}));
    let detail = refused.text();
    assert_eq!(refused.problem(503), "out_of_terminals");
    assert!(detail.contains("no pseudo-terminals left"), "{detail}");
}

#[test]
fn a_file_beyond_the_size_limit_is_an_error_and_the_server_keeps_running() {
    if !has_sandboxes() {
        return;
    }
    let home = Home::new();
    let namespace = [("STEAD_PROVIDER", "namespace")];
    let server = Server::start_as(&home, &["--set", "sandbox.warm=0"], &namespace);
    let client = server.client();
    // Less than the disk of a sandbox.
    let limit = Rlimit { current: Some(32 << 20), maximum: Some(32 << 20) };
    prlimit(Pid::from_raw(server.pid()), Resource::Fsize, limit).unwrap();
    let refused = client.post("/api/threads/t/exec", json!({"command": "true"}));
    let detail = refused.text();
    assert_eq!(refused.problem(503), "provider_unavailable");
    assert!(detail.contains("File too large"), "{detail}");
    client.get("/healthz").expect_status(200);
    client.put("/api/threads/u", json!({"provider": "local"})).expect_success();
    assert_eq!(exec(&client, "u", "echo runs")["stdout"], "runs\n");
}
