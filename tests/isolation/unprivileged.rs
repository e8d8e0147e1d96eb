//! A server without root: the same sandboxes, within the rights of a user.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::PARALLEL_SANDBOXES;
use crate::probes::{FUNCTIONS, PROBES};
use crate::world::{MACHINE, PUBLIC, has, internet};
use harness::{Client, Home, Server, wait_for};

/// The account `nobody`, which owns no files.
const USER: u32 = 65534;

/// Probes of abilities that only root can give to a sandbox.
const NEEDS_ROOT: [&str; 1] = ["a user of the machine"];

/// Whether the user may open `/dev/net/tun`, which connects a sandbox to the network.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tun {
    Open,
    Shut,
}

struct Person {
    server: Option<Server>,
    home: Home,
    canary: String,
    program: PathBuf,
    // Listens during the whole test, so that the probes could find it.
    _service: TcpListener,
}

impl Person {
    /// Starts a server of this user in the network of the test. Prints a message and returns `None` where this is not
    /// possible.
    fn new(tun: Tun) -> Option<Person> {
        if !rustix::process::geteuid().is_root() || !has("setpriv") || !has("perl") {
            eprintln!(
                "skipped: to become another user takes root and setpriv; the probes need perl"
            );
            return None;
        }
        if tun == Tun::Open && !(has("pasta") && has("nft")) {
            eprintln!(
                "skipped: a user's sandboxes are connected by pasta, and nft has their rules"
            );
            return None;
        }
        internet();
        let service = TcpListener::bind("0.0.0.0:81").unwrap();
        let home = Home::new();
        // The directory that it was built in may be private.
        let program = home.path().with_extension("program");
        // Copied by another process: a child that another thread of this process forks meanwhile would inherit the
        // descriptor, and a file that is open for writing cannot be executed.
        let copied = Command::new("cp").arg(harness::program()).arg(&program).status();
        assert!(copied.unwrap().success());
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        chown(home.path(), Some(USER), Some(USER)).unwrap();
        let mode = if tun == Tun::Open { "0666" } else { "0600" };
        let mut node = Command::new("mknod");
        node.args(["-m", mode]).arg(home.path().join("tun")).args(["c", "10", "200"]);
        assert!(node.status().unwrap().success());
        let mut person = Person {
            server: None,
            home,
            canary: "stead-canary-user".into(),
            program,
            _service: service,
        };
        fs::write(person.home.path().join(&person.canary), &person.canary).unwrap();
        match person.start("namespace") {
            Ok(server) => person.server = Some(server),
            Err(error) if error.contains("is not available") => {
                eprintln!("skipped: users cannot have sandboxes on this machine: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        }
        Some(person)
    }

    /// Starts the server in a mount namespace whose `/dev/net/tun` is the one of the test.
    fn start(&self, provider: &str) -> Result<Server, String> {
        let script = format!(
            "mount --bind {}/tun /dev/net/tun && STEAD_PROVIDER={provider} \
             exec setpriv --reuid {USER} --regid {USER} --clear-groups {} \"$@\"",
            self.home.path().display(),
            self.program.display()
        );
        Server::start_beneath(&self.home, &["unshare", "--mount", "sh", "-c", &script])
    }

    /// Returns the description of the namespace provider.
    fn provider(&self) -> String {
        let providers = self.client().get("/api/providers").expect(200);
        let all = providers["items"].as_array().unwrap();
        all.iter().find(|it| it["name"] == "namespace").unwrap().to_string()
    }

    /// Returns the `pasta` processes of this home, each of which connects one sandbox.
    fn pasta_processes(&self) -> Vec<String> {
        let home = self.home.path().display().to_string();
        let all = fs::read_dir("/proc").unwrap().flatten();
        let lines = all.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
        lines.filter(|line| line.starts_with("pasta") && line.contains(&home)).collect()
    }

    fn client(&self) -> Client {
        self.server.as_ref().unwrap().client()
    }

    fn run(&self, thread: &str, command: &str) -> String {
        let body = json!({"command": command, "timeout_ms": 60_000});
        let ran = self.client().post(&format!("/api/threads/{thread}/exec"), body).expect(200);
        ran["stdout"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned()
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.program);
    }
}

#[test]
fn a_user_gets_sandboxes_by_default_if_they_can_be_connected() {
    for (tun, expected) in [(Tun::Open, "namespace"), (Tun::Shut, "local")] {
        let Some(mut person) = Person::new(tun) else { return };
        person.server = None;
        person.server = Some(person.start("auto").unwrap());
        person.client().put("/api/threads/t", json!({})).expect_success();
        let thread = person.client().get("/api/threads/t").expect(200);
        assert_eq!(thread["sandbox"]["type"], expected, "{thread}");
    }
}

#[test]
fn no_probe_breaches_a_sandbox_of_a_user() {
    let tun = if has("pasta") && has("nft") { Tun::Open } else { Tun::Shut };
    let Some(person) = Person::new(tun) else { return };
    let server = person.server.as_ref().unwrap();
    let settings = format!(
        "export SERVER_PID={} PORT={} HOME_DIR={} CANARY={} MACHINE={MACHINE} GATEWAY=198.18.0.1",
        server.pid(),
        server.address.port(),
        person.home.path().display(),
        person.canary
    );
    let part = |nth: usize| {
        let thread = format!("probes-{nth}");
        person.run(&thread, FUNCTIONS);
        person.run(&thread, &settings);
        let mut breaches = Vec::new();
        for probe in PROBES.iter().skip(nth).step_by(PARALLEL_SANDBOXES) {
            if NEEDS_ROOT.contains(&probe.name) {
                continue;
            }
            let output = person.run(&thread, &format!("( {} )", probe.script));
            let verdict = output.lines().last().unwrap_or_default().to_owned();
            println!("{verdict:6} {:10} {:10} {}", "user", probe.group, probe.name);
            if verdict != "SAFE" {
                breaches.push(format!("{}: {}: {output:?}", probe.group, probe.name));
            }
        }
        person.client().delete(&format!("/api/threads/{thread}")).expect_success();
        breaches
    };
    let part = &part;
    let breaches = std::thread::scope(|scope| {
        let parts: Vec<_> =
            (0..PARALLEL_SANDBOXES).map(|nth| scope.spawn(move || part(nth))).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(breaches.is_empty(), "{} breaches: {breaches:#?}", breaches.len());
}

#[test]
fn a_process_of_the_same_user_cannot_read_the_memory_of_the_server() {
    let Some(person) = Person::new(Tun::Shut) else { return };
    let environ = format!("/proc/{}/environ", person.server.as_ref().unwrap().pid());
    let user = USER.to_string();
    let as_user = ["--reuid", &user, "--regid", &user, "--clear-groups", "cat", &environ];
    let read = Command::new("setpriv").args(as_user).output().unwrap();
    let message = String::from_utf8_lossy(&read.stderr);
    assert!(!read.status.success() && message.contains("Permission denied"), "{message}");
}

#[test]
fn a_users_sandbox_works_like_any_other() {
    let Some(mut person) = Person::new(Tun::Shut) else { return };
    assert_eq!(
        person.run("work", "id -u; echo kept > /root/file; echo mine > /workspace/file"),
        "0\n"
    );
    assert_eq!(person.run("other", "cat /root/file 2>/dev/null; cat /workspace/file"), "mine\n");
    // The provider reports missing abilities, and requests for them are refused.
    let provider = person.provider();
    assert!(provider.contains("no limits for memory"), "{provider}");
    assert!(provider.contains("no network: "), "{provider}");
    for settings in [json!({"memory": "1g"}), json!({"egress": "public"})] {
        let body = json!({"provider": "namespace", "sandbox": settings});
        let refused = person.client().put("/api/threads/greedy", body);
        assert!((400..500).contains(&refused.status), "{}", refused.text());
    }
    // It can be paused and resumed.
    person.run("work", "( while :; do date +%s%N > /tmp/now; sleep 0.01; done ) & true");
    let lease = person.client().get("/api/threads/work/lease").expect(200);
    let target = |verb: &str| format!("/api/leases/{}/{verb}", lease["lease_id"].as_str().unwrap());
    person.client().post(&target("pause"), Value::Null).expect_success();
    person.client().post(&target("resume"), Value::Null).expect_success();
    assert_eq!(person.run("work", "kill %1; echo on").lines().last(), Some("on"));
    // The number of processes is bounded.
    let many = "perl -e 'my $n = 0; while (defined(my $p = fork)) { $p or do { sleep 3; exit }; $n++; last if $n > 5000 } print $n'";
    let made: u32 = person.run("work", many).trim().parse().unwrap();
    assert!(made < 2000, "{made} processes were made");
    // After the server was killed, the shell and its files are still there.
    person.run("work", "here=still");
    drop(person.server.take());
    person.server = Some(person.start("namespace").unwrap());
    assert_eq!(person.run("work", "echo $here; cat /root/file"), "still\nkept\n");
    for thread in ["work", "other"] {
        person.client().delete(&format!("/api/threads/{thread}")).expect_success();
    }
    wait_for("everything to be removed", || {
        let left = |name: &str| {
            let entries = fs::read_dir(person.home.path().join(name)).into_iter().flatten();
            entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let left = [left("sandboxes"), left("disks")].concat();
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

/// Egress settings have the same effect as for root, although the implementation differs.
#[test]
fn a_users_sandbox_reaches_allowed_destinations_only() {
    let Some(mut person) = Person::new(Tun::Open) else { return };
    assert!(person.provider().contains("network egress rules"), "{}", person.provider());
    let port = person.server.as_ref().unwrap().address.port();
    // The machine itself is never reached: not by its address, not by its loopback, not by the address of the
    // gateway.
    let machine = [(MACHINE, 81, false), ("127.0.0.1", port, false), ("198.18.0.1", 81, false)];
    let public = [
        (PUBLIC[0], 80, true),
        (PUBLIC[1], 80, true),
        ("169.254.169.254", 80, false),
        ("10.1.2.3", 80, false),
        ("192.168.7.7", 80, false),
    ];
    let all = [(PUBLIC[0], 80, true), ("10.1.2.3", 80, true)];
    let list = [(PUBLIC[0], 80, true), ("10.1.2.3", 80, true), (PUBLIC[1], 80, false)];
    let nothing = [(PUBLIC[0], 80, false), ("10.1.2.3", 80, false)];
    let listed = format!("203.0.113.1:80,10.1.2.3:80,{MACHINE}:81");
    /// Address, port, and whether it is reached.
    type Destinations<'a> = &'a [(&'a str, u16, bool)];
    let cases: [(&str, Value, Destinations<'_>); 5] = [
        ("usual", json!({}), &public),
        ("public", json!({"egress": "public"}), &public),
        ("all", json!({"egress": "all"}), &all),
        ("list", json!({"egress": listed}), &list),
        ("none", json!({"egress": "none"}), &nothing),
    ];
    for (thread, settings, expected) in &cases {
        let body = json!({"provider": "namespace", "sandbox": settings});
        person.client().put(&format!("/api/threads/{thread}"), body).expect(201);
        for (address, port, reached) in expected.iter().chain(&machine) {
            // Refused connections fail at once, so a long timeout affects only those that are allowed.
            let connect = format!(
                "timeout 50 bash -c 'exec 9<>/dev/tcp/{address}/{port} && echo reached' 2>/dev/null"
            );
            let output = person.run(thread, &connect);
            let is_reached = output == "reached\n";
            assert_eq!(is_reached, *reached, "{thread}: {address}:{port}: {output:?}");
        }
    }
    for (thread, _, expected) in &cases {
        let log = person.client().get(&format!("/api/sandboxes/{thread}/egress")).expect(200);
        for (address, port, reached) in expected.iter().chain(&machine) {
            let items = log["items"].as_array().unwrap();
            let entry = items.iter().find(|it| it["address"] == *address && it["port"] == *port);
            // The loopback is not logged, and a sandbox without a network has no log.
            let verdict = match (*thread, *address, *reached) {
                ("none", ..) | (_, "127.0.0.1", _) => None,
                (_, _, true) => Some("allowed"),
                (_, _, false) => Some("refused"),
            };
            let found = entry.and_then(|entry| entry["verdict"].as_str());
            assert_eq!(found, verdict, "{thread}: {address}:{port}: {log}");
        }
    }
    // One process for each sandbox with a network.
    wait_for("four pasta processes", || match person.pasta_processes() {
        four if four.len() == 4 => Ok(()),
        other => Err(other),
    });
    // They keep running without the server, and end with their sandboxes.
    drop(person.server.take());
    person.server = Some(person.start("namespace").unwrap());
    let again = format!("exec 9<>/dev/tcp/{}/80 && head -1 <&9", PUBLIC[0]);
    assert_eq!(person.run("public", &again), "the internet\n");
    for (thread, ..) in &cases {
        person.client().delete(&format!("/api/threads/{thread}")).expect_success();
    }
    wait_for("the pasta processes to end", || match person.pasta_processes() {
        none if none.is_empty() => Ok(()),
        some => Err(some),
    });
}

/// The kernel counts inotify instances for the user who created the sandbox, too.
#[test]
fn a_users_sandbox_leaves_inotify_instances_to_others() {
    let Some(person) = Person::new(Tun::Shut) else { return };
    let number = if cfg!(target_arch = "aarch64") { 26 } else { 294 };
    let take = format!(
        "mkfifo /tmp/taken; perl -e '$| = 1; my $n = 0; \
         while (syscall({number}, 0) >= 0 && $n < 200) {{ $n++ }} print \"$n\\n\"; sleep 600' \
         > /tmp/taken & head -1 /tmp/taken"
    );
    let taken: u32 = person.run("greedy", &take).trim().parse().unwrap();
    assert!(taken <= 16, "{taken} inotify instances were taken");
    assert_eq!(person.run("greedy", "echo here"), "here\n");
    assert_eq!(person.run("other", "echo there"), "there\n");
}
