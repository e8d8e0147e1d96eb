//! Containers through the API, with engines that the tests start.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use model::{InstanceId, LeaseId, Timestamp};
use provider::{Intent, Observed, Provider};
use serde_json::{Value, json};

use super::registry;
use harness::{Engine, Home, Server, engines, left, let_pass, terminal::exec, wait_for, wait_long};

fn serve(home: &Home, engine: &Engine) -> Server {
    serve_with(home, engine, &[])
}

fn serve_with(home: &Home, engine: &Engine, more: &[&str]) -> Server {
    let host = format!("docker.host={}", engine.address());
    let mut arguments = vec!["--provider", "docker", "--set", &host];
    arguments.extend(["--set", "sandbox.egress=none", "--set", "sandbox.memory=128m"]);
    arguments.extend(["--set", "sandbox.processes=64", "--set", "sandbox.disk=64m"]);
    arguments.extend(["--set", "sandbox.warm=0"]);
    arguments.extend(more);
    Server::start_with(home, &arguments)
}

fn stdout(server: &Server, thread: &str, command: &str) -> String {
    let ran = exec(&server.client(), thread, command);
    ran["stdout"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned()
}

fn instance(server: &Server, thread: &str) -> Value {
    server.client().get(&format!("/api/threads/{thread}/lease")).expect(200)["instance"].clone()
}

/// Deletes the threads of a home, and checks that no container is left.
fn end(server: &Server, home: &Home, engine: &Engine, threads: &[&str]) {
    for thread in threads {
        server.client().delete(&format!("/api/threads/{thread}")).expect_success();
    }
    wait_long("all containers to be removed", || {
        let mut left = left(home.path());
        left.extend(engine.containers(home.path()));
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

#[test]
fn a_container_has_no_privileges_and_cannot_see_the_machine() {
    for (name, engine) in engines() {
        let home = Home::new();
        let server = serve_with(&home, engine, &["--set", "sandbox.capabilities=none"]);
        let mine = |command: &str| stdout(&server, "inside", command);
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
                "the host's descriptors",
                "readlink /proc/1/fd/*; ls /proc/1/fd/4/ /proc/1/root; cat /proc/1/environ; true"
                    .into(),
            ),
            ("the server's home", format!("ls -d {path}; true")),
            (
                "other processes",
                "ps -e -o comm= | grep -E 'dockerd|conmon|containerd'; true".into(),
            ),
            (
                "a writable path",
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
        // Two containers cannot notice or signal each other by a file of the machine.
        let device = |thread: &str| stdout(&server, thread, "stat -c %d /usr");
        assert_ne!(device("inside"), device("beside"), "{name}");
        let held = "exec 9</usr/bin/env && flock 9 && echo locked";
        assert_eq!(mine(held), "locked\n", "{name}");
        let free = "flock --nonblock 9 9</usr/bin/env && echo free";
        assert_eq!(stdout(&server, "beside", free), "free\n", "{name}");
        // The project's files are visible, under the same path as with every provider.
        mine("echo from inside > /workspace/mark");
        let project = server.client().get("/api/threads/inside").expect(200)["project_id"].clone();
        let repo = home.path().join("workspaces").join(project.as_str().unwrap()).join("repo");
        assert_eq!(fs::read_to_string(repo.join("mark")).unwrap(), "from inside\n");
        let metrics = instance(&server, "inside")["metrics"].clone();
        assert_eq!(metrics["limits"]["memory_bytes"], 128 << 20, "{metrics}");
        // Only the process that exceeds the limit is killed; the host would be the last.
        let bomb =
            "perl -e '$x = \"x\" x (1 << 20); push @a, $x . $_ for 1 .. 4096'; echo ended $?";
        assert!(mine(bomb).contains("ended 137"), "{name}");
        assert_eq!(mine("echo alive"), "alive\n");
        end(&server, &home, engine, &["inside", "beside"]);
    }
}

#[test]
fn a_killed_server_finds_its_containers_again() {
    for (name, engine) in engines() {
        let home = Home::new();
        let server = serve(&home, engine);
        let shell = stdout(&server, "kept", "mark=kept; cd /tmp; echo $$");
        let before = instance(&server, "kept")["instance_id"].clone();
        server.kill();
        let server = serve(&home, engine);
        assert_eq!(
            stdout(&server, "kept", "echo $$ $mark $PWD"),
            format!("{} kept /tmp\n", shell.trim())
        );
        assert_eq!(instance(&server, "kept")["instance_id"], before, "{name}");
        // Paused, and the server killed again: the next use resumes it.
        server.client().post("/api/threads/kept/pause", json!({})).expect_success();
        assert_eq!(instance(&server, "kept")["state"], "paused");
        server.kill();
        let server = serve(&home, engine);
        assert_eq!(instance(&server, "kept")["state"], "paused");
        assert_eq!(stdout(&server, "kept", "echo $mark"), "kept\n");
        end(&server, &home, engine, &["kept"]);
    }
}

#[test]
fn a_removed_container_is_recreated_with_the_state_of_the_shell() {
    for (name, engine) in engines() {
        let home = Home::new();
        let server = serve(&home, engine);
        stdout(&server, "again", "mark=kept; cd /workspace; export OTHER=too; f() { echo whole; }");
        let before = instance(&server, "again")["instance_id"].clone();
        let [container] = &engine.containers(home.path())[..] else { panic!("one container") };
        engine.ask("DELETE", &format!("/containers{container}?force=true")).unwrap();
        let again = stdout(&server, "again", "echo $mark $OTHER $PWD $(f)");
        assert_eq!(again, "kept too /workspace whole\n", "{name}");
        assert_ne!(instance(&server, "again")["instance_id"], before);
        end(&server, &home, engine, &["again"]);
    }
}

#[test]
fn shells_keep_running_while_their_engine_is_down() {
    let engine = match Engine::docker() {
        Ok(engine) => engine,
        Err(why) => return eprintln!("{why}"),
    };
    let home = Home::new();
    let server = serve(&home, &engine);
    stdout(&server, "away", "mark=kept");
    let listed = |server: &Server| {
        let all = server.client().get("/api/providers").expect(200);
        let items = all["items"].as_array().unwrap();
        items.iter().find(|item| item["name"] == "docker").unwrap().clone()
    };
    assert_eq!(listed(&server)["available"], true);
    engine.go_away();
    assert_eq!(stdout(&server, "away", "echo $mark"), "kept\n");
    let missing = listed(&server);
    assert_eq!(missing["available"], false, "{missing}");
    assert!(
        missing["missing"][0].as_str().unwrap().contains("no container engine found"),
        "{missing}"
    );
    // A server that starts meanwhile serves the running shells.
    server.kill();
    let server = serve(&home, &engine);
    assert_eq!(stdout(&server, "away", "echo $mark"), "kept\n");
    // An engine that restarts may end running containers; the state survives.
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
fn a_server_killed_during_creation_and_removal_leaves_no_orphan() {
    let times = if std::env::var_os("STEAD_SOAK").is_some() { 50 } else { 5 };
    for (name, engine) in engines() {
        let home = Home::new();
        let mut server = serve_with(&home, engine, &["--set", "sandbox.warm=1"]);
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
            // The last server has no warm containers, so that none may be left.
            let warm = if round + 1 < times { "sandbox.warm=1" } else { "sandbox.warm=0" };
            server = serve_with(&home, engine, &["--set", warm]);
        }
        // Every remaining container belongs to a thread and works.
        let threads = server.client().get("/api/threads?limit=500").expect(200);
        for thread in threads["items"].as_array().unwrap() {
            let thread = thread["thread_id"].as_str().unwrap();
            assert_eq!(stdout(&server, thread, "echo here"), "here\n", "{name}");
            server.client().delete(&format!("/api/threads/{thread}")).expect_success();
        }
        end(&server, &home, engine, &[]);
    }
}

/// An engine completes a request although the server was killed: the container may appear after the next
/// server has listed the containers.
#[test]
fn a_container_that_appears_late_is_removed() {
    for (name, engine) in engines() {
        let home = Home::new();
        let server = serve(&home, engine);
        stdout(&server, "known", "mark=kept");
        let known = engine.containers(home.path());
        assert_eq!(known.len(), 1, "{name}");
        engine.make("stead-late", home.path(), &engine.machine_image());
        wait_long("the late container to be removed", || {
            let there = engine.containers(home.path());
            if there == known { Ok(()) } else { Err(there) }
        });
        assert_eq!(stdout(&server, "known", "echo $mark"), "kept\n", "{name}");
        end(&server, &home, engine, &["known"]);
    }
}

#[tokio::test]
async fn a_container_with_a_conflicting_name_is_replaced() {
    for (name, engine) in engines() {
        let home = Home::new();
        let provider = super::containers(home.path(), &engine.address());
        let intent = || Intent {
            lease_id: LeaseId::fresh(),
            generation: 1,
            instance_id: InstanceId::fresh(),
            spec: Value::Null,
        };
        let first = intent();
        provider.create(&first).await.unwrap();
        let second = intent();
        let container = format!("stead-{}", second.instance_id);
        engine.make(&container, home.path(), &engine.machine_image());
        assert_eq!(provider.create(&second).await.unwrap().reference, container, "{name}");
        for found in provider.find_by_label(None).await.unwrap() {
            assert_eq!(found.observed, Observed::Running, "{name}");
            provider.destroy(&found.instance(Timestamp::now())).await.unwrap();
        }
        assert_eq!(engine.containers(home.path()), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn a_full_disk_is_reported_and_its_limit_cannot_be_bypassed() {
    for (name, engine) in engines() {
        let home = Home::new();
        let server = serve(&home, engine);
        let directories =
            ["/tmp", "/var/tmp", "/root", "/etc", "/", "/workspace", "/memories/persistent"];
        for dir in directories {
            let fill = format!("f={}/fill", dir.trim_end_matches('/'));
            let fill = format!("{fill}; head -c 1G /dev/zero > $f; e=$?; rm $f; (exit $e)");
            let full = exec(&server.client(), "full", &fill);
            assert_eq!(full["limit_reached"], "disk_full", "{name}: {dir}: {full}");
        }
        // RAM disks are small.
        for (dir, max_mebibytes) in [("/dev", 1), ("/dev/shm", 8), ("/run", 32), ("/sys", 0)] {
            let fill =
                format!("head -c 1G /dev/zero > {dir}/fill; stat -c %s {dir}/fill || echo 0");
            let fill = format!("{{ {fill}; }} 2>/dev/null; rm -f {dir}/fill");
            let filled = exec(&server.client(), "full", &fill);
            let bytes: u64 = filled["stdout"].as_str().unwrap().trim().parse().unwrap();
            assert!(bytes <= max_mebibytes << 20, "{name}: {dir}: {bytes}");
        }
        // Many files meet the limit that one meets.
        let many = "for i in 1 2 3; do head -c 30M /dev/zero > /workspace/$i || break; done; rm /workspace/*; false";
        let full = exec(&server.client(), "full", many);
        assert_eq!(full["limit_reached"], "disk_full", "{name}: {full}");
        end(&server, &home, engine, &["full"]);
    }
}

/// Creates as many inotify instances as the kernel allows, leaves signals pending, and prints their number.
const TAKE_BUDGETS: &str = r#"perl -MPOSIX -e '
    sigprocmask(SIG_BLOCK, POSIX::SigSet->new(40)); kill 40, $$ for 1..3000;
    my $taken = 0; $taken++ while syscall(294, 0) >= 0;
    $| = 1; print "$taken\n"; sleep 1000' >/tmp/taken &
    until [ -s /tmp/taken ]; do sleep 0.05; done; cat /tmp/taken"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn a_container_cannot_exhaust_the_limits_of_another_or_of_the_machine() {
    for (name, engine) in engines() {
        let home = Home::new();
        let server = serve(&home, engine);
        let took =
            |thread: &str| -> u64 { stdout(&server, thread, TAKE_BUDGETS).trim().parse().unwrap() };
        let greedy = took("greedy");
        let pending = "awk '/SigQ/ {split($2, of, \"/\"); print of[1]}' /proc/self/status";
        let pending = stdout(&server, "other", pending);
        assert!(pending.trim().parse::<u64>().unwrap() < 3000, "{name}: {pending}");
        // More than the kernel gives to one user, such as the machine's root.
        let limit = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap();
        let limit: u64 = limit.trim().parse().unwrap();
        let other = took("other");
        assert!(greedy + other > limit, "{name}: {greedy} and {other}");
        end(&server, &home, engine, &["greedy", "other"]);
    }
}

#[test]
fn a_suspended_container_keeps_its_files_and_the_state_of_its_shell() {
    for (name, engine) in engines() {
        let home = Home::new();
        let server = serve(&home, engine);
        let client = server.client();
        stdout(&server, "t", "echo kept > /opt/file; cd /opt; A=1; sleep 1000 &");
        let lease = client.get("/api/threads/t/lease").expect(200);
        let target = format!("/api/leases/{}", lease["lease_id"].as_str().unwrap());
        let suspend = format!("{target}/suspend");
        let refused = client.post(&suspend, json!({"fidelity": "memory"})).problem(409);
        assert_eq!(refused, "not_supported");
        let suspended = client.post(&suspend, json!({"fidelity": "filesystem"})).expect(200);
        assert_eq!(suspended["instance"], Value::Null, "{name}");
        assert_eq!(engine.containers(home.path()), Vec::<String>::new(), "{name}");
        assert_eq!(
            stdout(&server, "t", "cat file; echo $A $PWD; jobs"),
            "kept\n1 /opt\n",
            "{name}"
        );
        let fork = client.post(&format!("{target}/fork"), json!({})).expect(201);
        client.put("/api/threads/two", json!({"lease_id": fork["lease_id"]})).expect(201);
        stdout(&server, "t", "echo changed > /opt/file");
        assert_eq!(stdout(&server, "two", "cat /opt/file"), "kept\n", "{name}");
        let made = client.post(&format!("{target}/snapshot"), json!({"name": "ready"})).expect(201);
        assert_eq!((&made["name"], &made["provider"]), (&json!("ready"), &json!("docker")));
        let body = json!({"sandbox": {"snapshot": "ready"}});
        client.put("/api/threads/three", body).expect(201);
        assert_eq!(stdout(&server, "three", "cat /opt/file"), "changed\n", "{name}");
        client.delete("/api/snapshots/ready").expect_status(204);
        end(&server, &home, engine, &["t", "two", "three"]);
    }
}

/// Waits until this many warm containers are ready.
fn wait_ready(server: &Server, count: usize) {
    wait_long("warm containers", || {
        let all = server.client().get("/api/providers").expect(200);
        let items = all["items"].as_array().unwrap();
        let docker = items.iter().find(|item| item["name"] == "docker").unwrap();
        if docker["ready"] == count { Ok(()) } else { Err(docker.clone()) }
    });
}

#[test]
fn a_new_thread_gets_a_warm_container() {
    for (name, engine) in engines() {
        let home = Home::new();
        let server = serve_with(&home, engine, &["--set", "sandbox.warm=1"]);
        for thread in ["one", "two"] {
            wait_ready(&server, 1);
            let began = std::time::Instant::now();
            assert_eq!(
                stdout(&server, thread, "echo $PWD; ls /tmp; touch /tmp/mine"),
                "/workspace\n"
            );
            println!("{name}: first command of a new thread after {:?}", began.elapsed());
            let id = instance(&server, thread)["instance_id"].as_str().unwrap().to_owned();
            let label = fs::read_to_string(home.path().join("containers").join(id).join("label"));
            assert!(label.unwrap().contains("stead-warm-"), "{name}");
        }
        // It can be paused, and the next server finds it, like any other.
        wait_ready(&server, 1);
        server.client().post("/api/threads/one/pause", json!({})).expect_success();
        assert_eq!(instance(&server, "one")["state"], "paused", "{name}");
        server.kill();
        let server = serve(&home, engine);
        assert_eq!(stdout(&server, "one", "ls /tmp"), "mine\n", "{name}");
        // The warm container of the killed server is removed.
        wait_long("two containers", || {
            let there = engine.containers(home.path());
            if there.len() == 2 { Ok(()) } else { Err(there) }
        });
        assert_eq!(stdout(&server, "two", "ls /tmp"), "mine\n", "{name}");
        end(&server, &home, engine, &["one", "two"]);
    }
}

#[test]
fn warm_containers_end_with_the_server() {
    for (_, engine) in engines() {
        let home = Home::new();
        let mut server = serve_with(&home, engine, &["--set", "sandbox.warm=1"]);
        wait_ready(&server, 1);
        server.terminate();
        server.wait();
        // Even if the shutdown timed out, the next server removes them.
        let server = serve(&home, engine);
        end(&server, &home, engine, &[]);
    }
}

/// Creates a small root file system with one shell.
pub(super) fn small_root(root: &Path) {
    for dir in ["bin", "etc", "tmp", "root"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    let busybox = Path::new("/usr/bin/busybox");
    let busybox = if busybox.exists() { busybox } else { Path::new("/bin/busybox") };
    add_program(root, busybox, "bin/busybox");
    for name in ["sh", "cat", "ls", "mkdir", "stty"] {
        symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    fs::write(root.join("etc/mark"), "of the image\n").unwrap();
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
}

/// Copies a program of this machine with its libraries.
pub(super) fn add_program(root: &Path, program: &Path, to: &str) {
    fs::copy(program, root.join(to)).unwrap();
    let libraries = std::process::Command::new("ldd").arg(program).output().unwrap();
    for word in String::from_utf8_lossy(&libraries.stdout).split_ascii_whitespace() {
        if word.starts_with('/') {
            let target = root.join(word.trim_start_matches('/'));
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            fs::copy(word, target).unwrap();
        }
    }
}

#[test]
fn a_container_can_use_an_imported_image() {
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
            [(json!({"image": "no/such image"}), "image"), (json!({"disk": "1k"}), "disk")]
        {
            let refused = client.put("/api/threads/refused", json!({"sandbox": spec}));
            assert!((400..500).contains(&refused.status), "{}", refused.text());
            assert!(refused.text().contains(word), "{}", refused.text());
        }
        end(&server, &home, engine, &["image"]);
    }
}

#[test]
fn an_image_is_pulled_and_its_progress_reported() {
    for (name, engine) in engines() {
        let home = Home::new();
        let root = home.path().join("root");
        small_root(&root);
        let settings = json!({"Env": ["GREETING=hello image"], "WorkingDir": "/etc"});
        let image = format!("{}/small:1", registry::serve_configured(&root, &settings));
        let server = serve(&home, engine);
        let client = server.client();
        let mut events = client.request("GET", "/api/events").events();
        client.put("/api/threads/pull", json!({"sandbox": {"image": image}})).expect_success();
        let terminal =
            client.post("/api/threads/pull/terminals", json!({"shell": "sh"})).expect(201);
        let target = format!("/api/terminals/{}/exec", terminal["terminal_id"].as_str().unwrap());
        let ran = client.post(&target, json!({"command": "cat mark; echo $GREETING"})).expect(200);
        assert_eq!(ran["stdout"], "of the image\nhello image\n", "{name}: {ran}");
        let progress = loop {
            let event = events.next().expect("an event").json();
            if event["type"] == "image_progress" {
                break event;
            }
        };
        assert_eq!(progress["image"], json!(image), "{progress}");
        // A missing image is refused with its name, without endless retries.
        let absent = image.replace("small:1", "absent:1");
        client.put("/api/threads/absent", json!({"sandbox": {"image": absent}})).expect_success();
        let refused = client.post("/api/threads/absent/exec", json!({"command": "true"}));
        assert_eq!(refused.status, 422, "{name}: {}", refused.text());
        assert!(refused.text().contains("absent"), "{}", refused.text());
        end(&server, &home, engine, &["pull", "absent"]);
    }
}
