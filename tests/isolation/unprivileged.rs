//! A server that is not root: the same sandboxes, with what a user can have.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::AT_ONCE;
use crate::harness::{Client, Home, Server, wait_for};
use crate::probes::{PROBES, WORDS};
use crate::world::has;

/// Nobody in particular.
const USER: u32 = 65534;

/// What only root can give, and what is asked of the machine instead.
const NEEDS_ROOT: [&str; 1] = ["a user of the machine"];

struct Person {
    server: Option<Server>,
    home: Home,
    canary: String,
    program: PathBuf,
}

impl Person {
    /// A server of this user; `None`, said, where there can be none.
    fn new() -> Option<Person> {
        if !rustix::process::geteuid().is_root() || !has("setpriv") || !has("perl") {
            eprintln!(
                "skipped: to become another user takes root and setpriv; the probes need perl"
            );
            return None;
        }
        let home = Home::new();
        // Where it was built may be nobody else's to see.
        let program = home.path().with_extension("program");
        // By another process: what a thread of this one starts meanwhile would hold it open for writing.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_stead")).arg(&program).status();
        assert!(copied.unwrap().success());
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        chown(home.path(), Some(USER), Some(USER)).unwrap();
        let mut person = Person { server: None, home, canary: "stead-canary-user".into(), program };
        fs::write(person.home.path().join(&person.canary), &person.canary).unwrap();
        match person.begin() {
            Ok(server) => person.server = Some(server),
            Err(said) if said.contains("cannot be had here") => {
                eprintln!("skipped: users cannot have sandboxes on this machine: {said}");
                return None;
            }
            Err(said) => panic!("{said}"),
        }
        Some(person)
    }

    fn begin(&self) -> Result<Server, String> {
        let user = USER.to_string();
        let script = format!("STEAD_PROVIDER=namespace exec {} \"$@\"", self.program.display());
        let become_user = ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"];
        Server::start_beneath(&self.home, &[&become_user[..], &["sh", "-c", &script]].concat())
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
fn no_probe_gets_through_for_a_user_who_is_not_root() {
    let Some(person) = Person::new() else { return };
    let server = person.server.as_ref().unwrap();
    let settings = format!(
        "export SERVER_PID={} PORT={} HOME_DIR={} CANARY={} MACHINE=127.0.0.1 GATEWAY=127.0.0.1",
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
fn a_users_sandbox_works_like_any_other() {
    let Some(mut person) = Person::new() else { return };
    assert_eq!(
        person.run("work", "id -u; echo kept > /root/file; echo mine > /workspace/file"),
        "0\n"
    );
    assert_eq!(person.run("other", "cat /root/file 2>/dev/null; cat /workspace/file"), "mine\n");
    // What it cannot have is said, and refused to whoever asks for it.
    let providers = person.client().get("/api/providers").expect(200);
    let said = providers["items"].as_array().unwrap().iter().find(|it| it["name"] == "namespace");
    assert!(said.unwrap().to_string().contains("no limits of memory"), "{providers}");
    let body = json!({"provider": "namespace", "sandbox": {"memory": "1g"}});
    let refused = person.client().put("/api/threads/greedy", body);
    assert!((400..500).contains(&refused.status), "{}", refused.text());
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
    person.server = Some(person.begin().unwrap());
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
