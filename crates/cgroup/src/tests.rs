//! Tests of the cgroups of a sandbox, on ordinary files.

use std::fs;
use std::path::PathBuf;

use super::hierarchy::{Hierarchy, hierarchies, inherit_cpus};
use super::*;

const HYBRID: &str = "\
30 25 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
31 25 0:27 / /sys/fs/cgroup/memory rw,relatime shared:4 - cgroup cgroup rw,memory
32 25 0:28 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
33 25 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
34 25 0:29 / /elsewhere rw,relatime - cgroup2 cgroup2 rw
35 25 0:30 / /proc rw - proc proc rw
";

#[test]
fn both_versions_are_found_on_one_machine() {
    let list = hierarchies(HYBRID);
    let seen: Vec<(&str, &str)> = list
        .iter()
        .map(|h| (h.mount.to_str().unwrap(), h.controllers.first().map_or("", String::as_str)))
        .collect();
    assert_eq!(
        seen,
        [
            ("/sys/fs/cgroup/cpu", "cpu"),
            ("/sys/fs/cgroup/memory", "memory"),
            ("/sys/fs/cgroup/systemd", "name=systemd"),
            ("/sys/fs/cgroup/unified", ""),
        ]
    );
}

/// Cgroups in ordinary files, so that a test can read what is written to the kernel.
fn in_files(controllers: &[&str], files: &[(&str, &str)]) -> (Cgroups, PathBuf) {
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let nth = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mount = std::env::temp_dir().join(format!("stead-cgroups-{}-{nth}", std::process::id()));
    fs::create_dir_all(mount.join("sandbox")).unwrap();
    for (name, text) in files {
        fs::write(mount.join(name), text).unwrap();
    }
    let controllers = controllers.iter().map(|name| (*name).to_owned()).collect();
    let hierarchies = [Hierarchy { controllers, mount: mount.clone() }].into();
    (Cgroups { hierarchies, path: "/sandbox".into() }, mount)
}

/// For each version: the CPUs of the parent, and what the file contains when all CPUs are allowed.
#[test]
fn a_sandbox_avoids_the_first_cpus_but_never_all() {
    let old = in_files(&["cpuset"], &[("cpuset.cpus", "0-1,4\n")]);
    let new = [("cgroup.controllers", "cpuset cpu"), ("cpuset.cpus.effective", "0-1,4\n")];
    for ((cgroups, mount), whole) in [(old, "0,1,4"), (in_files(&[], &new), "\n")] {
        let own = || fs::read_to_string(mount.join("sandbox/cpuset.cpus")).unwrap();
        for (count, expected, avoids) in [(1, "1,4", true), (9, "4", true), (0, whole, false)] {
            cgroups.avoid_first_cpus(count).unwrap();
            assert_eq!((own().as_str(), cgroups.avoids_cpus()), (expected, avoids));
        }
        fs::remove_dir_all(mount).unwrap();
    }
}

#[test]
fn a_new_cgroup_inherits_the_cpus_of_its_parent() {
    let none = [("sandbox/cpuset.cpus", "\n"), ("sandbox/cpuset.mems", "0\n")];
    let above = [("cpuset.cpus", "2-3\n"), ("cpuset.mems", "0-1\n")];
    let (_, mount) = in_files(&["cpuset"], &[above, none].concat());
    inherit_cpus(&mount, &mount.join("sandbox")).unwrap();
    let read = |name: &str| fs::read_to_string(mount.join("sandbox").join(name)).unwrap();
    assert_eq!((read("cpuset.cpus").as_str(), read("cpuset.mems").as_str()), ("2-3\n", "0\n"));
    fs::remove_dir_all(mount).unwrap();
}

#[test]
fn writes_are_limited_in_the_syntax_of_either_version() {
    let (old, mount) = in_files(&["blkio"], &[]);
    fs::create_dir(mount.join("sandbox/inside")).unwrap();
    old.limit_writes("7:3", 1000).unwrap();
    for dir in ["", "sandbox/inside"] {
        let written = fs::read_to_string(mount.join(dir).join(WRITE_RATES)).unwrap();
        assert_eq!(written, "7:3 1000", "{dir}");
    }
    fs::write(mount.join(WRITE_RATES), "7:3 1000\n8:0 5\n").unwrap();
    assert_eq!(old.limited_devices(), ["7:3"]);
    fs::remove_dir_all(mount).unwrap();
    let (new, mount) = in_files(&[], &[("cgroup.controllers", "io memory")]);
    for (rate, expected) in [(1000, "7:3 wbps=1000"), (0, "7:3 wbps=max")] {
        new.limit_writes("7:3", rate).unwrap();
        assert_eq!(fs::read_to_string(mount.join("sandbox/io.max")).unwrap(), expected);
    }
    fs::write(mount.join("sandbox/io.max"), "7:3 rbps=max wbps=9\n7:4 wbps=max\n").unwrap();
    assert_eq!(new.limited_devices(), ["7:3"]);
    fs::remove_dir_all(mount).unwrap();
    let (neither, mount) = in_files(&["memory"], &[]);
    neither.limit_writes("7:3", 1000).unwrap();
    fs::remove_dir_all(mount).unwrap();
}

#[test]
fn the_cgroup_of_a_process_is_the_one_with_its_limits() {
    let both = "4:cpu,cpuacct:/a\n3:memory:/engine/x:y\n0::/\n";
    assert_eq!(path(both), Some("/engine/x:y"));
    assert_eq!(path("0::/engine/x\n"), Some("/engine/x"));
    assert_eq!(path(""), None);
}

#[test]
fn counters_are_found_by_their_full_name() {
    let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
    assert_eq!(field(text, "oom_kill"), Some(3));
    assert_eq!(field(text, "oom"), None);
}
