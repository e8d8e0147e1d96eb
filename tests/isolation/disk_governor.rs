//! Heavy writers are slowed down while a neighbour waits for the disk, and only then.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use machine::{DiskGovernor, LatencyProbe};
use serde_json::{Value, json};

use crate::world::World;
use harness::{Client, wait_for};

/// The file with what version 1 lets the kernel write to each device.
const LIMITS: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

/// The rate that writers are slowed down to.
const RATE: u64 = 1 << 20;

fn has_limits() -> bool {
    let found = Path::new(LIMITS).exists();
    if !found {
        eprintln!("skipped: this machine's blkio controller is not of version 1");
    }
    found
}

fn exec(client: &Client, thread: &str, command: &str) -> Value {
    let body = json!({"command": command, "timeout_ms": 120_000});
    client.post(&format!("/api/threads/{thread}/exec"), body).expect(200)
}

/// The device of a disk image.
fn device(image: &Path) -> String {
    let image = fs::canonicalize(image).unwrap();
    let devices = fs::read_dir("/sys/dev/block").unwrap().flatten();
    let is_image = |dir: &PathBuf| {
        let file = fs::read_to_string(dir.join("loop/backing_file")).unwrap_or_default();
        Path::new(file.trim_end()) == image
    };
    let found = devices.map(|entry| entry.path()).find(is_image);
    found.expect("a device of the image").file_name().unwrap().to_str().unwrap().to_owned()
}

/// The devices that are limited to [`RATE`], of those given.
fn limited(file: &Path, devices: &[&str]) -> BTreeSet<String> {
    let text = fs::read_to_string(file).unwrap();
    let wanted = |device: &&&str| text.lines().any(|line| line == format!("{device} {RATE}"));
    devices.iter().filter(wanted).map(|device| (*device).to_owned()).collect()
}

#[test]
fn a_writer_is_slowed_down_while_others_wait_and_only_then() {
    // The server's own governor is off: this test has one with a victim of its own.
    let arguments = ["--set", "sandbox.egress=none", "--set", "sandbox.disk_rate=0"];
    let Some(world) = World::new(&arguments) else { return };
    if !has_limits() {
        return;
    }
    let (client, home) = (world.server.client(), world.home.path());
    let write = |dir: &str| {
        let command = format!("head -c 16M /dev/zero > {dir}/much; sync {dir}/much; echo written");
        assert_eq!(exec(&client, "writer", &command)["stdout"], "written\n");
    };
    write("/root");
    let lease = client.get("/api/threads/writer/lease").expect(200);
    let lease_disk =
        home.join("disks").join(format!("{}.img", lease["lease_id"].as_str().unwrap()));
    let workspace = home.join("workspaces/default-00000000/disk.img");
    let devices = [device(&lease_disk), device(&workspace)];
    let devices = [devices[0].as_str(), devices[1].as_str()];
    let both: BTreeSet<String> = devices.map(str::to_owned).into();
    let none = BTreeSet::new();
    let instance = lease["instance"]["instance_id"].as_str().unwrap();
    let label = fs::read(home.join("sandboxes").join(instance).join("label")).unwrap();
    let label: Value = serde_json::from_slice(&label).unwrap();
    let own =
        PathBuf::from("/sys/fs/cgroup/blkio/stead-sandboxes").join(label["name"].as_str().unwrap());
    let own = own.join("blkio.throttle.write_bps_device");

    let waits = Arc::new(AtomicBool::new(true));
    let victim = waits.clone();
    let probe = LatencyProbe::new(move || {
        let waits = victim.load(Ordering::Relaxed);
        Ok(if waits { Duration::from_secs(1) } else { Duration::ZERO })
    });
    let governor = DiskGovernor::new(home, RATE, probe);
    governor.govern().unwrap();
    let limits = || limited(Path::new(LIMITS), &devices);
    // Alone, it writes as fast as it can, although the disk is slow.
    for dir in ["/root", "/workspace", "/root"] {
        write(dir);
        governor.govern().unwrap();
        assert_eq!(limits(), none);
    }
    // So it does beside a neighbour that does not wait.
    exec(&client, "neighbour", "true");
    waits.store(false, Ordering::Relaxed);
    for dir in ["/root", "/workspace", "/root"] {
        write(dir);
        governor.govern().unwrap();
        assert_eq!(limits(), none);
    }
    // A neighbour waits.
    waits.store(true, Ordering::Relaxed);
    for (dir, device) in ["/root", "/workspace"].into_iter().zip(devices) {
        wait_for(&format!("{dir} to be limited"), || {
            write(dir);
            governor.govern().unwrap();
            if limits().contains(device) { Ok(()) } else { Err(limits()) }
        });
    }
    assert_eq!(limits(), both);
    // Direct writes are limited in the cgroup of the sandbox.
    assert_eq!(limited(&own, &devices), both);
    waits.store(false, Ordering::Relaxed);
    wait_for("no disk to be limited", || {
        governor.govern().unwrap();
        if limits() == none { Ok(()) } else { Err(limits()) }
    });
    assert_eq!(limited(&own, &devices), none);
}

#[test]
fn the_next_server_removes_the_limits_of_one_that_was_killed() {
    let arguments = ["--set", "sandbox.egress=none", "--set", "sandbox.disk_rate=0"];
    let Some(world) = World::new(&arguments) else { return };
    if !has_limits() {
        return;
    }
    let client = world.server.client();
    exec(&client, "one", "true");
    let lease = client.get("/api/threads/one/lease").expect(200);
    let disks = world.home.path().join("disks");
    let device = device(&disks.join(format!("{}.img", lease["lease_id"].as_str().unwrap())));
    fs::write(LIMITS, format!("{device} {RATE}")).unwrap();
    let none = BTreeSet::new();
    assert_ne!(limited(Path::new(LIMITS), &[&device]), none);
    let other = std::env::temp_dir();
    DiskGovernor::new(&other, RATE, LatencyProbe::of_home(&other)).govern().unwrap();
    assert_ne!(limited(Path::new(LIMITS), &[&device]), none, "it is of another home");
    let governor = DiskGovernor::new(world.home.path(), RATE, LatencyProbe::of_home(&other));
    governor.govern().unwrap();
    assert_eq!(limited(Path::new(LIMITS), &[&device]), none);
}

/// At this rate, writing what waits would take longer than a sandbox may take to end, or to be paused for a copy.
#[test]
fn a_limited_disk_is_copied_and_ended_at_full_speed() {
    let arguments = ["--set", "sandbox.egress=none", "--set", "sandbox.disk_rate=0"];
    let Some(world) = World::new(&arguments) else { return };
    if !has_limits() {
        return;
    }
    let client = world.server.client();
    exec(&client, "writer", "true");
    let lease = client.get("/api/threads/writer/lease").expect(200);
    let lease = lease["lease_id"].as_str().unwrap();
    let device = device(&world.home.path().join("disks").join(format!("{lease}.img")));
    let limit = || fs::write(LIMITS, format!("{device} 262144")).unwrap();
    limit();
    // More than a minute of writing at this rate.
    let writes = "dd if=/dev/zero of=/opt/x bs=1M count=24 conv=fsync 2>/dev/null &
        until [ \"$(stat -c %s /opt/x 2>/dev/null)\" -ge 8388608 ] 2>/dev/null; do sleep 0.1; done";
    exec(&client, "writer", writes);
    let snapshot = format!("/api/leases/{lease}/snapshot");
    client.post(&snapshot, json!({"name": "written"})).expect(201);
    assert_eq!(exec(&client, "writer", "wait; stat -c %s /opt/x")["stdout"], "25165824\n");
    limit();
    exec(&client, "writer", "head -c 24M /dev/urandom > /root/much");
    client.delete("/api/threads/writer").expect_success();
    wait_for("nothing to be left", || {
        let disks = fs::read_dir(world.home.path().join("disks")).into_iter().flatten().count();
        if disks == 0 { Ok(()) } else { Err(disks) }
    });
    let text = fs::read_to_string(LIMITS).unwrap();
    assert!(!text.lines().any(|line| line.starts_with(&format!("{device} "))), "{text}");
}
