//! A server that is not root: the same sandboxes, with what a user can have.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::AT_ONCE;
use crate::harness::{Client, Home, Server, wait_for};
use crate::probes::{PROBES, WORDS};
use crate::world::{MACHINE, PUBLIC, has, internet};

/// Nobody in particular.
const USER: u32 = 65534;

/// What only root can give, and what is asked of the machine instead.
const NEEDS_ROOT: [&str; 1] = ["a user of the machine"];

/// Whether the user may open what a sandbox is connected by.
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
    // Held open as long as somebody may look for it.
    _service: TcpListener,
}

impl Person {
    /// A server of this user, on a machine with an internet of the test's own; `None`, said, where there
    /// can be none.
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
        // Where it was built may be nobody else's to see.
        let program = home.path().with_extension("program");
        // By another process: what a thread of this one starts meanwhile would hold it open for writing.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_stead")).arg(&program).status();
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
        match person.begin("namespace") {
            Ok(server) => person.server = Some(server),
            Err(said) if said.contains("is not available") => {
                eprintln!("skipped: users cannot have sandboxes on this machine: {said}");
                return None;
            }
            Err(said) => panic!("{said}"),
        }
        Some(person)
    }

    /// In a view of the machine in which the device of networks is as it is to be.
    fn begin(&self, provider: &str) -> Result<Server, String> {
        let script = format!(
            "mount --bind {}/tun /dev/net/tun && STEAD_PROVIDER={provider} \
             exec setpriv --reuid {USER} --regid {USER} --clear-groups {} \"$@\"",
            self.home.path().display(),
            self.program.display()
        );
        Server::start_beneath(&self.home, &["unshare", "--mount", "sh", "-c", &script])
    }

    /// What is said of its sandboxes.
    fn provider(&self) -> String {
        let providers = self.client().get("/api/providers").expect(200);
        let all = providers["items"].as_array().unwrap();
        all.iter().find(|it| it["name"] == "namespace").unwrap().to_string()
    }

    /// Programs of this home that connect a sandbox.
    fn connecting(&self) -> Vec<String> {
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
        person.server = Some(person.begin("auto").unwrap());
        person.client().put("/api/threads/t", json!({})).expect_success();
        let thread = person.client().get("/api/threads/t").expect(200);
        assert_eq!(thread["sandbox"]["type"], expected, "{thread}");
    }
}

#[test]
fn no_probe_gets_through_for_a_user_who_is_not_root() {
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
        person.run(&thread, WORDS);
        person.run(&thread, &settings);
        let mut breaches = Vec::new();
        for probe in PROBES.iter().skip(nth).step_by(AT_ONCE) {
            if NEEDS_ROOT.contains(&probe.name) {
                continue;
            }
            let said = person.run(&thread, &format!("( {} )", probe.script));
            let verdict = said.lines().last().unwrap_or_default().to_owned();
            println!("{verdict:6} {:10} {:10} {}", "user", probe.group, probe.name);
            if verdict != "SAFE" {
                breaches.push(format!("{}: {}: {said:?}", probe.group, probe.name));
            }
        }
        person.client().delete(&format!("/api/threads/{thread}")).expect_success();
        breaches
    };
    let part = &part;
    let breaches = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..AT_ONCE).map(|nth| scope.spawn(move || part(nth))).collect();
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
    // What it cannot have is said, and refused to whoever asks for it.
    let said = person.provider();
    assert!(said.contains("no limits for memory"), "{said}");
    assert!(said.contains("no network: "), "{said}");
    for settings in [json!({"memory": "1g"}), json!({"egress": "public"})] {
        let body = json!({"provider": "namespace", "sandbox": settings});
        let refused = person.client().put("/api/threads/greedy", body);
        assert!((400..500).contains(&refused.status), "{}", refused.text());
    }
    // It holds still, and goes on.
    person.run("work", "( while :; do date +%s%N > /tmp/now; sleep 0.01; done ) & true");
    let lease = person.client().get("/api/threads/work/lease").expect(200);
    let target = |verb: &str| format!("/api/leases/{}/{verb}", lease["lease_id"].as_str().unwrap());
    person.client().post(&target("pause"), Value::Null).expect_success();
    person.client().post(&target("resume"), Value::Null).expect_success();
    assert_eq!(person.run("work", "kill %1; echo on").lines().last(), Some("on"));
    // As many processes as it may have, and no more.
    let many = "perl -e 'my $n = 0; while (defined(my $p = fork)) { $p or do { sleep 3; exit }; $n++; last if $n > 5000 } print $n'";
    let made: u32 = person.run("work", many).trim().parse().unwrap();
    assert!(made < 2000, "{made} processes were made");
    // The server is killed; the shell and its files are still there.
    person.run("work", "here=still");
    drop(person.server.take());
    person.server = Some(person.begin("namespace").unwrap());
    assert_eq!(person.run("work", "echo $here; cat /root/file"), "still\nkept\n");
    for thread in ["work", "other"] {
        person.client().delete(&format!("/api/threads/{thread}")).expect_success();
    }
    wait_for("nothing to be left", || {
        let left = |name: &str| {
            let entries = fs::read_dir(person.home.path().join(name)).into_iter().flatten();
            entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let left = [left("sandboxes"), left("disks")].concat();
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

/// The same meanings as for root, by another way.
#[test]
fn a_users_sandbox_reaches_what_it_may_and_nothing_else() {
    let Some(mut person) = Person::new(Tun::Open) else { return };
    assert!(person.provider().contains("network egress rules"), "{}", person.provider());
    let port = person.server.as_ref().unwrap().address.port();
    // Of the machine itself nothing, whatever is asked for: not by its address, not by its loopback, not
    // by the address of the way out.
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
    type Doors<'a> = &'a [(&'a str, u16, bool)];
    let cases: [(&str, Value, Doors<'_>); 5] = [
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
            // What is refused is refused at once; what is not may take its time.
            let knock = format!(
                "timeout 50 bash -c 'exec 9<>/dev/tcp/{address}/{port} && echo reached' 2>/dev/null"
            );
            let said = person.run(thread, &knock);
            assert_eq!(said == "reached\n", *reached, "{thread}: {address}:{port}: {said:?}");
        }
    }
    for (thread, _, expected) in &cases {
        let log = person.client().get(&format!("/api/sandboxes/{thread}/egress")).expect(200);
        for (address, port, reached) in expected.iter().chain(&machine) {
            let items = log["items"].as_array().unwrap();
            let entry = items.iter().find(|it| it["address"] == *address && it["port"] == *port);
            // The loopback is no egress, and neither is a network that is not there.
            let verdict = match (*thread, *address, *reached) {
                ("none", ..) | (_, "127.0.0.1", _) => None,
                (_, _, true) => Some("allowed"),
                (_, _, false) => Some("refused"),
            };
            let found = entry.and_then(|entry| entry["verdict"].as_str());
            assert_eq!(found, verdict, "{thread}: {address}:{port}: {log}");
        }
    }
    // One each, for all but the one that reaches nothing.
    wait_for("four to be connected", || match person.connecting() {
        four if four.len() == 4 => Ok(()),
        other => Err(other),
    });
    // It stays connected without its server, and is let go of with its sandbox.
    drop(person.server.take());
    person.server = Some(person.begin("namespace").unwrap());
    let again = format!("exec 9<>/dev/tcp/{}/80 && head -1 <&9", PUBLIC[0]);
    assert_eq!(person.run("public", &again), "the internet\n");
    for (thread, ..) in &cases {
        person.client().delete(&format!("/api/threads/{thread}")).expect_success();
    }
    wait_for("nothing to connect what is gone", || match person.connecting() {
        none if none.is_empty() => Ok(()),
        some => Err(some),
    });
}

/// The kernel counts these for the user who made the sandbox, too.
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
