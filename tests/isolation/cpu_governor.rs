//! The CPU governor keeps sandboxes that compute for a long time off the first CPU.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::world::World;
use harness::{Server, wait_for};

/// A sandbox with the name of its cgroup.
struct Observed {
    thread: String,
    name: String,
}

impl Observed {
    /// Creates the sandbox of a thread with these settings.
    fn new(world: &World, thread: &str, settings: Value) -> Observed {
        let client = world.server.client();
        let body = json!({"provider": "namespace", "sandbox": settings});
        client.put(&format!("/api/threads/{thread}"), body).expect(201);
        run(&world.server, thread, "true");
        let lease = client.get(&format!("/api/threads/{thread}/lease")).expect(200);
        let instance = lease["instance"]["instance_id"].as_str().unwrap();
        let label = world.home.path().join("sandboxes").join(instance).join("label");
        let label: Value = serde_json::from_slice(&fs::read(label).unwrap()).unwrap();
        let name = label["name"].as_str().unwrap().to_owned();
        Observed { thread: thread.to_owned(), name }
    }

    /// Returns a file of the cgroup, whose name depends on the version of cgroups.
    fn file(&self, controller: &str, old: &str, new: &str) -> PathBuf {
        let below = Path::new("stead-sandboxes").join(&self.name);
        let [one, other] = [
            Path::new("/sys/fs/cgroup").join(controller).join(&below).join(old),
            Path::new("/sys/fs/cgroup").join(&below).join(new),
        ];
        if one.exists() { one } else { other }
    }

    /// Returns the number of CPUs that the sandbox may run on.
    fn processors(&self) -> usize {
        let file = self.file("cpuset", "cpuset.cpus", "cpuset.cpus.effective");
        let list = fs::read_to_string(file).unwrap();
        let count = |part: &str| -> Option<usize> {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(last.parse::<usize>().ok()? - first.parse::<usize>().ok()? + 1)
        };
        list.trim().split(',').filter_map(count).sum()
    }

    fn has_processors(&self, wanted: usize) {
        wait_for(&format!("{} to have {wanted} processors", self.thread), || {
            let count = self.processors();
            if count == wanted { Ok(()) } else { Err(count) }
        });
    }

    /// Starts an endless computation. The cgroup gets the highest weight, so that the sandbox reaches its limit even
    /// if the machine is busy.
    fn compute(&self, server: &Server) {
        let (file, max_weight) = match self.file("cpu", "cpu.shares", "cpu.weight") {
            old if old.ends_with("cpu.shares") => (old, "262144"),
            new => (new, "10000"),
        };
        let all_sandboxes = file.parent().unwrap().with_file_name(file.file_name().unwrap());
        for file in [file, all_sandboxes] {
            fs::write(file, max_weight).unwrap();
        }
        run(server, &self.thread, "( while :; do :; done ) & computes=$!");
    }
}

fn run(server: &Server, thread: &str, command: &str) -> String {
    let body = json!({"command": command, "timeout_ms": 120_000});
    let ran = server.client().post(&format!("/api/threads/{thread}/exec"), body).expect(200);
    ran["stdout"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned()
}

/// Returns the number of CPUs of this machine. Prints a message and returns `None` if there is only one, which cannot
/// be kept free.
fn processors() -> Option<usize> {
    let count = std::thread::available_parallelism().unwrap().get();
    if count < 2 {
        eprintln!("skipped: this machine has one processor");
        return None;
    }
    Some(count)
}

/// A server that replaces a killed one continues this.
#[test]
fn a_busy_sandbox_is_kept_off_the_first_cpu_until_it_is_calm() {
    let Some(all) = processors() else { return };
    let Some(mut world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let busy = Observed::new(&world, "busy", json!({"cpus": 0.5}));
    let calm = Observed::new(&world, "calm", json!({"cpus": 0.5}));
    assert_eq!((busy.processors(), calm.processors()), (all, all));
    busy.compute(&world.server);
    busy.has_processors(all - 1);
    run(&world.server, "busy", "kill $computes");
    busy.has_processors(all);

    busy.compute(&world.server);
    busy.has_processors(all - 1);
    assert_eq!(calm.processors(), all, "a calm sandbox is kept off the first CPU");
    let pid = rustix::process::Pid::from_raw(world.server.pid()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    world.server.wait();
    world.server = Server::start_with(
        &world.home,
        &["--provider", "namespace", "--set", "sandbox.warm=0", "--set", "sandbox.disk=64m"],
    );
    // The loop and the host of the sandbox share half a CPU, so the host may be slow to answer the server.
    wait_for("the host of the sandbox to answer", || {
        let body = json!({"command": "kill $computes", "timeout_ms": 120_000});
        let answer = world.server.client().post("/api/threads/busy/exec", body);
        if answer.status == 200 { Ok(()) } else { Err(answer.text()) }
    });
    busy.has_processors(all);
}

/// A sandbox whose limit is the whole machine is not governed.
#[test]
fn a_sandbox_with_every_cpu_keeps_them() {
    let Some(all) = processors() else { return };
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let whole = Observed::new(&world, "whole", json!({"cpus": all}));
    let part = Observed::new(&world, "part", json!({"cpus": 0.5}));
    whole.compute(&world.server);
    part.compute(&world.server);
    // The governor checks both in the same pass.
    part.has_processors(all - 1);
    assert_eq!(whole.processors(), all);
}
