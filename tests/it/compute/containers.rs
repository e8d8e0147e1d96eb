//! Containers through the front door, with engines of the test's own.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use serde_json::{Value, json};

use super::registry;
use crate::{
    harness::{Engine, Home, Server, engines, let_pass, wait_for},
    terminal::exec,
};

fn serve(home: &Home, engine: &Engine) -> Server {
    let host = format!("docker.host={}", engine.address());
    let mut arguments = vec!["--provider", "docker", "--set", &host];
    arguments.extend(["--set", "sandbox.egress=none", "--set", "sandbox.memory=128m"]);
    arguments.extend(["--set", "sandbox.processes=64"]);
    Server::start_with(home, &arguments)
}

fn said(server: &Server, thread: &str, command: &str) -> String {
    let ran = exec(&server.client(), thread, command);
    ran["stdout"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned()
}

fn instance(server: &Server, thread: &str) -> Value {
    server.client().get(&format!("/api/threads/{thread}/lease")).expect(200)["instance"].clone()
}

/// Ends what is in a home's containers, and looks that nothing is left of it.
fn end(server: &Server, home: &Home, engine: &Engine, threads: &[&str]) {
    for thread in threads {
        server.client().delete(&format!("/api/threads/{thread}")).expect_success();
    }
    wait_for("no container to be left", || {
        let left = engine.containers(home.path());
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    let dirs = fs::read_dir(home.path().join("containers")).unwrap().flatten();
    assert_eq!(
        dirs.map(|entry| entry.path()).collect::<Vec<_>>(),
        Vec::<std::path::PathBuf>::new()
    );
}

#[test]
fn nobody_inside_has_rights_or_sees_what_is_outside() {
    for (name, engine) in engines() {
        let home = Home::new();
        let server = serve(&home, engine);
        let mine = |command: &str| said(&server, "inside", command);
        let status = mine(
            "grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status",
        );
        let values: Vec<&str> = status.split_ascii_whitespace().skip(1).step_by(2).collect();
        let none = "0000000000000000";
        assert_eq!(values, [none, none, none, none, none, "1", "2"], "{name}: {status}");
        let path = home.path().display().to_string();
        for (what, command) in [
            ("the door", "ls -A /.stead-door".to_owned()),
            ("sockets", "find / -xdev -type s; find /run /dev /.stead* -type s; true".to_owned()),
            (
                "what the host holds",
                "readlink /proc/1/fd/*; ls /proc/1/fd/4/ /proc/1/root; cat /proc/1/environ; true"
                    .into(),
            ),
            ("the server's home", format!("ls -d {path}; true")),
            (
                "other processes",
                "ps -e -o comm= | grep -E 'dockerd|conmon|containerd'; true".into(),
            ),
            (
                "a place to write",
                "touch /usr/mark /.stead/mark /etc/hosts && echo wrote; true".into(),
            ),
            (
                "the machine's disks",
                "ls -A /sys/block /sys/class 2>/dev/null | grep -v ':$'; true".into(),
            ),
            ("io_uring", "perl -e 'syscall(425, 1, 0) >= 0 and print \"made\"'".into()),
            ("a namespace", "unshare -U true 2>/dev/null && echo made; true".into()),
        ] {
            assert_eq!(mine(&format!("{{ {command}; }} 2>/dev/null")).trim(), "", "{name}: {what}");
        }
        // What it is to see, it does: the project's files, under the name of every provider.
        mine("echo from inside > /workspace/mark");
        let project = server.client().get("/api/threads/inside").expect(200)["project_id"].clone();
        let repo = home.path().join("workspaces").join(project.as_str().unwrap()).join("repo");
        assert_eq!(fs::read_to_string(repo.join("mark")).unwrap(), "from inside\n");
        let metrics = instance(&server, "inside")["metrics"].clone();
        assert_eq!(metrics["limits"]["memory_bytes"], 128 << 20, "{metrics}");
        // Only the offender suffers, and the host is the last to go.
        let bomb =
            "perl -e '$x = \"x\" x (1 << 20); push @a, $x . $_ for 1 .. 4096'; echo ended $?";
        assert!(mine(bomb).contains("ended 137"), "{name}");
        assert_eq!(mine("echo alive"), "alive\n");
        end(&server, &home, engine, &["inside"]);
    }
}

#[test]
fn a_server_that_was_killed_finds_its_containers_again() {
    for (name, engine) in engines() {
        let home = Home::new();
        let server = serve(&home, engine);
        let shell = said(&server, "kept", "mark=kept; cd /tmp; echo $$");
        let before = instance(&server, "kept")["instance_id"].clone();
        server.kill();
        let server = serve(&home, engine);
        assert_eq!(
            said(&server, "kept", "echo $$ $mark $PWD"),
            format!("{} kept /tmp\n", shell.trim())
        );
        assert_eq!(instance(&server, "kept")["instance_id"], before, "{name}");
        // Paused, and killed again: it goes on when it is used.
        server.client().post("/api/threads/kept/pause", json!({})).expect_success();
        assert_eq!(instance(&server, "kept")["state"], "paused");
        server.kill();
        let server = serve(&home, engine);
        assert_eq!(instance(&server, "kept")["state"], "paused");
        assert_eq!(said(&server, "kept", "echo $mark"), "kept\n");
        end(&server, &home, engine, &["kept"]);
    }
}

#[test]
fn a_container_that_somebody_removed_is_made_again_with_the_shells_state() {
    for (name, engine) in engines() {
        let home = Home::new();
        let server = serve(&home, engine);
        said(&server, "again", "mark=kept; cd /workspace; export OTHER=too; f() { echo whole; }");
        let before = instance(&server, "again")["instance_id"].clone();
        let [container] = &engine.containers(home.path())[..] else { panic!("one container") };
        engine.ask("DELETE", &format!("/containers{container}?force=true")).unwrap();
        let again = said(&server, "again", "echo $mark $OTHER $PWD $(f)");
        assert_eq!(again, "kept too /workspace whole\n", "{name}");
        assert_ne!(instance(&server, "again")["instance_id"], before);
        end(&server, &home, engine, &["again"]);
    }
}

#[test]
fn shells_go_on_while_their_engine_is_away() {
    let engine = match Engine::docker() {
        Ok(engine) => engine,
        Err(why) => return eprintln!("{why}"),
    };
    let home = Home::new();
    let server = serve(&home, &engine);
    said(&server, "away", "mark=kept");
    let listed = |server: &Server| {
        let all = server.client().get("/api/providers").expect(200);
        let items = all["items"].as_array().unwrap();
        items.iter().find(|item| item["name"] == "docker").unwrap().clone()
    };
    assert_eq!(listed(&server)["available"], true);
    engine.go_away();
    assert_eq!(said(&server, "away", "echo $mark"), "kept\n");
    let missing = listed(&server);
    assert_eq!(missing["available"], false, "{missing}");
    assert!(missing["missing"][0].as_str().unwrap().contains("none answers"), "{missing}");
    // A server that starts meanwhile serves what runs.
    server.kill();
    let server = serve(&home, &engine);
    assert_eq!(said(&server, "away", "echo $mark"), "kept\n");
    // An engine that comes back may end what it finds running; the state outlives that.
    engine.come_back();
    wait_for("the shell to answer again", || {
        let body = json!({"command": "echo $mark"});
        let answer = server.client().post("/api/threads/away/exec", body);
        if answer.status == 200 && answer.json()["stdout"] == "kept\n" {
            Ok(())
        } else {
            Err(answer.text())
        }
    });
    end(&server, &home, &engine, &["away"]);
}

#[test]
fn a_server_killed_while_containers_come_and_go_leaves_none() {
    let times = if std::env::var_os("STEAD_SOAK").is_some() { 50 } else { 5 };
    for (name, engine) in engines() {
        let home = Home::new();
        let mut server = serve(&home, engine);
        for round in 0..times {
            std::thread::scope(|scope| {
                for thread in ["a", "b"] {
                    let server = &server;
                    scope.spawn(move || {
                        let thread = format!("/api/threads/{thread}{round}");
                        let body = r#"{"command":"echo hello"}"#;
                        server.attempt("POST", &format!("{thread}/exec"), body);
                        server.attempt("DELETE", &thread, "");
                    });
                }
                let_pass(Duration::from_millis(round * 173 % 1100));
                let pid = rustix::process::Pid::from_raw(server.pid()).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            });
            server = serve(&home, engine);
        }
        // What is still there belongs to a thread, and works.
        let threads = server.client().get("/api/threads?limit=500").expect(200);
        for thread in threads["items"].as_array().unwrap() {
            let thread = thread["thread_id"].as_str().unwrap();
            assert_eq!(said(&server, thread, "echo here"), "here\n", "{name}");
            server.client().delete(&format!("/api/threads/{thread}")).expect_success();
        }
        end(&server, &home, engine, &[]);
    }
}

/// A small root with one shell in it.
fn small_root(root: &Path) {
    for dir in ["bin", "etc", "tmp", "root"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    let busybox = Path::new("/usr/bin/busybox");
    let busybox = if busybox.exists() { busybox } else { Path::new("/bin/busybox") };
    fs::copy(busybox, root.join("bin/busybox")).unwrap();
    for name in ["sh", "cat", "ls", "mkdir", "stty"] {
        symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    let libraries = std::process::Command::new("ldd").arg(busybox).output().unwrap();
    for word in String::from_utf8_lossy(&libraries.stdout).split_ascii_whitespace() {
        if word.starts_with('/') {
            let target = root.join(word.trim_start_matches('/'));
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            fs::copy(word, target).unwrap();
        }
    }
    fs::write(root.join("etc/mark"), "of the image\n").unwrap();
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
}

#[test]
fn a_container_is_made_from_an_image_that_was_imported() {
    for (name, engine) in engines() {
        let home = Home::new();
        small_root(&home.path().join("images/small/rootfs"));
        let server = serve(&home, engine);
        let client = server.client();
        let body = json!({"sandbox": {"image": "small"}});
        client.put("/api/threads/image", body).expect_success();
        let terminal =
            client.post("/api/threads/image/terminals", json!({"shell": "sh"})).expect(201);
        let target = format!("/api/terminals/{}/exec", terminal["terminal_id"].as_str().unwrap());
        let ran = client.post(&target, json!({"command": "cat /etc/mark; ls /usr"})).expect(200);
        assert!(ran["stdout"].as_str().unwrap().starts_with("of the image\n"), "{name}: {ran}");
        for (spec, word) in
            [(json!({"image": "no/such image"}), "image"), (json!({"disk": "1g"}), "disk")]
        {
            let refused = client.put("/api/threads/refused", json!({"sandbox": spec}));
            assert!((400..500).contains(&refused.status), "{}", refused.text());
            assert!(refused.text().contains(word), "{}", refused.text());
        }
        end(&server, &home, engine, &["image"]);
    }
}

#[test]
fn an_image_is_pulled_and_its_progress_told() {
    for (name, engine) in engines() {
        let home = Home::new();
        let root = home.path().join("root");
        small_root(&root);
        let image = format!("{}/small:1", registry::serve(&root));
        let server = serve(&home, engine);
        let client = server.client();
        let mut events = client.request("GET", "/api/events").events();
        client.put("/api/threads/pull", json!({"sandbox": {"image": image}})).expect_success();
        let terminal =
            client.post("/api/threads/pull/terminals", json!({"shell": "sh"})).expect(201);
        let target = format!("/api/terminals/{}/exec", terminal["terminal_id"].as_str().unwrap());
        let ran = client.post(&target, json!({"command": "cat /etc/mark"})).expect(200);
        assert_eq!(ran["stdout"], "of the image\n", "{name}: {ran}");
        let told = loop {
            let event = events.next().expect("an event").json();
            if event["type"] == "image_progress" {
                break event;
            }
        };
        assert_eq!(told["image"], json!(image), "{told}");
        // One that is not there is refused with its name, not tried for ever.
        let absent = image.replace("small:1", "absent:1");
        client.put("/api/threads/absent", json!({"sandbox": {"image": absent}})).expect_success();
        let refused = client.post("/api/threads/absent/exec", json!({"command": "true"}));
        assert!((400..600).contains(&refused.status), "{}", refused.text());
        assert!(refused.text().contains("absent"), "{}", refused.text());
        end(&server, &home, engine, &["pull", "absent"]);
    }
}
