//! Statistics, session records, the lock of a home, and memories in the shell.

use std::io::{Read, Write};

use serde_json::{Value, json};

use super::{World, world, world_with};
use harness::{Home, Server, run, wait_for};

#[test]
fn statistics_and_records_are_right_and_outlive_the_server() {
    let mut world = world();
    let path = format!("/api/projects/{}", world.project);
    let exec = |world: &World, thread: &str, command: &str| {
        let body = json!({"command": command});
        world.client.post(&format!("/api/threads/{thread}/exec"), body).expect(200)
    };
    exec(&world, "t", "printf 12345");
    exec(&world, "t", "printf 123 >&2");
    let other = world.client.post(&format!("{path}/sessions"), json!({})).expect(201);
    let other = other["thread_id"].as_str().unwrap().to_owned();
    exec(&world, &other, "head -c 100000 /dev/zero > big; sync");
    let check = |world: &World| {
        let shown = world.client.get(&path).expect(200);
        let counted = &shown["statistics"];
        assert_eq!(counted["sessions"], 2, "{counted}");
        assert_eq!(counted["commands"], 3, "{counted}");
        assert_eq!(counted["bytes"], 8, "{counted}");
        assert!(counted["disk_bytes"].as_u64().unwrap() >= 100_000, "{counted}");
        let last: jiff::Timestamp = counted["last_access"].as_str().unwrap().parse().unwrap();
        let age = jiff::Timestamp::now().duration_since(last).as_secs();
        assert!((0..120).contains(&age), "{counted}");
        let records = world.client.get(&format!("{path}/sessions")).expect(200);
        let records = records["items"].as_array().unwrap().clone();
        assert_eq!(records.len(), 2, "{records:?}");
        records
    };
    check(&world);
    world.client.post("/api/threads/t/session/close", json!({})).expect(200);
    world.client.delete(&format!("/api/threads/{other}")).expect_success();
    let records = check(&world);
    let closed = records.iter().find(|record| record["thread_id"] == "t").unwrap();
    assert_eq!(closed["status"], "closed");
    assert!(closed["ended_at"].is_string());
    assert!(records.iter().any(|record| record["thread_id"] == other.as_str()), "{records:?}");
    world.restart();
    check(&world);
    // Lost metadata is made again from the rows.
    let metadata = world.home.path().join("workspaces").join(&world.project).join("project.json");
    std::fs::remove_file(&metadata).unwrap();
    world.restart();
    let text = std::fs::read_to_string(&metadata).unwrap();
    let copy: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(copy["project_id"], world.project.as_str());
}

#[test]
fn a_thread_that_names_no_project_has_the_default_one() {
    let world = world();
    world.client.put("/api/threads/free", json!({})).expect_success();
    let thread = world.client.get("/api/threads/free").expect(200);
    assert_eq!(thread["project_id"], "default-00000000");
    let ran = world.client.post("/api/threads/free/exec", json!({"command": "pwd"})).expect(200);
    let repo = world.home.path().join("workspaces/default-00000000/repo");
    assert_eq!(ran["stdout"].as_str().unwrap().trim_end(), repo.to_str().unwrap());
    let path = "/api/projects/default-00000000";
    assert_eq!(world.client.delete(path).problem(409), "conflict");
}

#[test]
fn a_second_server_on_a_home_is_refused_with_the_pid_of_the_first() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--provider", "local"]);
    let path = home.path().to_str().unwrap().to_owned();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--home", &path, "--provider", "local"];
    let second = run(&arguments, &[("HOME", &path), ("PATH", "/usr/bin:/bin")]);
    let error = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success());
    assert!(error.contains(&server.pid().to_string()) && error.contains(&path), "{error}");
    server.client().get("/api/projects").expect(200);
    server.kill();
    drop(Server::start_with(&home, &["--provider", "local"]));
}

#[test]
fn the_shell_finds_the_persistent_memories() {
    let mut providers = vec!["local"];
    let listed = {
        let home = Home::new();
        let server = Server::start_with(&home, &["--provider", "local"]);
        server.client().get("/api/providers").expect(200)
    };
    let has = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .any(|it| it["name"] == "namespace" && it["available"] != false);
    match has {
        true => providers.push("namespace"),
        false => eprintln!("without sandboxes: {listed}"),
    }
    for provider in providers {
        let world = world_with(&["--provider", provider], &[]);
        world.write("/memories/persistent/notes/today", b"ship it\n").expect(201);
        let exec = |command: &str| {
            let body = json!({"command": command});
            world.client.post("/api/threads/t/exec", body).expect(200)
        };
        let ran =
            exec("cat $STEAD_MEMORIES/notes/today; echo from the shell > $STEAD_MEMORIES/reply");
        assert_eq!(
            (&ran["stdout"], &ran["stderr"]),
            (&json!("ship it\n"), &json!("")),
            "{provider}"
        );
        let read = world.read("/memories/persistent/reply");
        assert_eq!(read.expect_status(200).text(), "from the shell\n", "{provider}");
        // The workspace is the same files on both sides.
        exec("echo x > made-in-the-shell");
        assert_eq!(world.read("/workspace/made-in-the-shell").text(), "x\n", "{provider}");
        world.write("/workspace/made-outside", b"y\n").expect(201);
        assert_eq!(exec("cat made-outside")["stdout"], "y\n", "{provider}");
        world.client.delete("/api/threads/t").expect_success();
    }
}

#[test]
fn every_verb_has_an_example() {
    let home = Home::new();
    let path = home.path().to_str().unwrap().to_owned();
    let help = |arguments: &[&str]| {
        let output = run(&[arguments, &["--help"]].concat(), &[("HOME", &path)]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let projects = [
        "create", "ls", "show", "set", "sessions", "pin", "unpin", "extend", "rm", "restore",
        "export", "import", "cleanup",
    ];
    let memories = ["get", "put", "ls", "rm"];
    for (noun, verbs) in [("project", &projects[..]), ("memory", &memories[..])] {
        for verb in verbs {
            let text = help(&[noun, verb]);
            assert!(text.contains(&format!("stead {noun} {verb}")), "{noun} {verb}: {text}");
            assert!(text.contains("Example"), "{noun} {verb}: {text}");
        }
    }
}

/// Returns the peak resident memory of a process in kilobytes.
fn peak_kb(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_large_file_is_copied_with_little_memory() {
    let mebibytes: u64 = if std::env::var_os("STEAD_SOAK").is_some() { 1024 } else { 192 };
    let world = world();
    world.write("/workspace/small", b"x").expect(201);
    let before = peak_kb(world.server.pid());
    let length = (mebibytes << 20).to_string();
    let target = "/api/threads/t/fs/write?path=/workspace/large";
    let request = world.client.request("PUT", target).header("content-length", &length);
    let mut stream = request.header("connection", "close").start();
    // Noise, so that an archive of it is as large and comes as steadily.
    let mut state = 1u64;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    for _ in 0..mebibytes {
        let piece: Vec<u8> = (0..1 << 17).flat_map(|_| noise()).collect();
        stream.write_all(&piece).unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");

    let export = format!("/api/projects/{}/export", world.project);
    for target in ["/api/threads/t/fs/read?path=/workspace/large", &export] {
        let mut stream = world.client.request("GET", target).header("connection", "close").start();
        let read = std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
        assert!(read >= mebibytes << 20, "{target}: {read}");
    }
    let grown = peak_kb(world.server.pid()) - before;
    eprintln!("{mebibytes} MiB in and out: the server grew by {grown} kB at most");
    assert!(grown < 48 << 10, "the server grew by {grown} kB for {mebibytes} MiB");
}

#[test]
fn hot_memories_say_how_old_and_how_large_they_are() {
    let world = world_with(&[], &[("STEAD_MEMORY_SNAPSHOT_INTERVAL", "1s")]);
    world.write("/memories/hot/k", &[b'x'; 5000]).expect(201);
    wait_for("a snapshot by itself", || match world.metric("stead_memory_snapshots_total") {
        0.0 => Err(0),
        _ => Ok(()),
    });
    assert!(world.metric("stead_memory_snapshot_bytes_total") >= 5000.0);
    assert!(world.metric("stead_memory_bytes") >= 5000.0);
    assert_eq!(world.metric("stead_memory_entries"), 1.0);
    wait_for("no change without a snapshot", || {
        match world.metric("stead_memory_snapshot_age_seconds") {
            0.0 => Ok(()),
            age => Err(age),
        }
    });
}
