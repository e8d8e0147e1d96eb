//! Commands about this machine: `stead doctor`, `stead image`, and the limits of a new thread.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::world::World;
use harness::run;

#[test]
fn doctor_creates_a_sandbox_and_removes_it() {
    if World::new(&[]).is_none() {
        return;
    }
    let output = run(&["doctor", "--json"], &[("HOME", "/nonexistent")]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let trial = findings.iter().find(|finding| finding["what"] == "a sandbox");
    assert_eq!(trial.map(|trial| &trial["verdict"]), Some(&json!("yes")), "{report}");
    assert!(output.status.success(), "{report}");
    let text = String::from_utf8(run(&["doctor", "--inspect"], &[("HOME", "/nonexistent")]).stdout);
    assert!(text.unwrap().contains("This machine can run namespace sandboxes."));
}

#[test]
fn the_command_line_sets_limits() {
    let Some(world) = World::new(&[]) else { return };
    let home = world.home.path().to_str().unwrap();
    let stead = |arguments: &[&str]| run(arguments, &[("STEAD_HOME", home)]);
    let limits = ["--memory", "80m", "--cpus", "0.5", "--processes", "40", "--disk", "48m"];
    let new =
        ["new", "-d", "-t", "chosen", "--provider", "namespace", "--egress", "203.0.113.1:80"];
    let made = stead(&[&new[..], &limits].concat());
    assert!(made.status.success(), "{made:?}");
    let lease = world.server.client().get("/api/threads/chosen/lease").expect(200);
    assert_eq!(
        lease["instance"]["metrics"]["limits"],
        json!({"memory_bytes": 80 << 20, "milli_cpus": 500, "processes": 40, "disk_bytes": 48 << 20}),
        "{lease}"
    );
    let connect = "timeout 4 bash -c 'exec 9<>/dev/tcp/203.0.113.1/80; head -1 <&9'";
    let ran = stead(&["exec", "--thread", "chosen", "--", connect]);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "the internet\n");
    let wrong = stead(&["new", "-d", "-t", "other", "--memory", "much"]);
    let error = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(!wrong.status.success() && error.contains("memory"), "{error}");
    let other = stead(&["new", "-d", "-t", "chosen", "--memory", "1g"]);
    assert!(!other.status.success(), "the sandbox of a thread does not change: {other:?}");
    let local = stead(&["new", "-d", "-t", "third", "--provider", "local", "--memory", "1g"]);
    let error = String::from_utf8_lossy(&local.stderr).into_owned();
    assert!(!local.status.success() && error.contains("no settings"), "{error}");
}

/// Writes a root file system with a few programs of this machine and their libraries.
pub fn small_root(root: &Path, more: &[&str]) {
    let programs = ["/bin/bash", "/bin/cat", "/bin/ls"].iter().chain(more);
    let mut files: BTreeSet<String> = programs.map(|program| (*program).to_owned()).collect();
    for program in files.clone() {
        let needs = Command::new("ldd").arg(&program).output().unwrap();
        let needs = String::from_utf8(needs.stdout).unwrap();
        let words = needs.split_whitespace().filter(|word| word.starts_with('/'));
        files.extend(words.map(str::to_owned));
    }
    for file in files {
        let target = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(&file, target).unwrap();
    }
    fs::write(root.join("marker"), "of the image\n").unwrap();
}

#[test]
fn a_sandbox_is_created_from_an_imported_image() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let home = world.home.path();
    let root = home.join("small");
    small_root(&root, &[]);
    let archive = home.join("small.tar");
    let packed =
        Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&root).arg(".").status();
    assert!(packed.unwrap().success());
    let stead = |arguments: &[&str]| run(arguments, &[("STEAD_HOME", home.to_str().unwrap())]);
    for (name, source) in [("from-dir", &root), ("from-tar", &archive)] {
        let source = source.to_str().unwrap();
        let imported = stead(&["image", "import", name, source]);
        assert!(imported.status.success(), "{imported:?}");
        assert!(
            !stead(&["image", "import", name, source]).status.success(),
            "an existing image was replaced"
        );
        let client = world.server.client();
        let body = json!({"provider": "namespace", "sandbox": {"image": name}, "cwd": "/"});
        client.put(&format!("/api/threads/{name}"), body).expect(201);
        let target = format!("/api/threads/{name}/exec");
        let command =
            "cat /marker; echo changed > /marker; cat /marker; [ -e /usr/bin/perl ] || echo small";
        let ran = client.post(&target, json!({"command": command})).expect(200);
        assert_eq!(ran["stdout"], "of the image\nchanged\nsmall\n", "{ran}");
        let own = fs::read_to_string(home.join("images").join(name).join("rootfs/marker"));
        assert_eq!(own.unwrap(), "of the image\n", "the image itself is changed");
    }
    let listed = String::from_utf8(stead(&["image", "ls"]).stdout).unwrap();
    let names: Vec<&str> =
        listed.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["from-dir", "from-tar"], "{listed}");
    let refused = stead(&["image", "rm", "from-tar"]);
    assert!(!refused.status.success(), "an image in use is removed: {refused:?}");
    assert!(stead(&["image", "rm", "--force", "from-tar"]).status.success());
    let body = json!({"provider": "namespace", "sandbox": {"image": "from-tar"}});
    world.server.client().put("/api/threads/late", body).problem(400);
    assert!(!stead(&["image", "import", "none", "/proc/self/status"]).status.success());
}
