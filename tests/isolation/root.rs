//! Root in a sandbox installs packages and manages users without effect on the machine.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::machine::small_root;
use crate::world::{Sandbox, World};
use harness::{Client, Home, Server, engines, has_sandboxes, run};

/// The first user id of directories that sandboxes share with the machine.
const SHARED_USERS: u32 = 0xc000_0000;

fn exec(client: &Client, thread: &str, command: &str) -> Value {
    let target = format!("/api/threads/{thread}/exec");
    let client = client.clone().with_long_timeout();
    client.post(&target, json!({"command": command, "timeout_ms": 240_000})).expect(200)
}

/// Returns the output of a command that must succeed.
fn output(client: &Client, thread: &str, command: &str) -> String {
    let receipt = exec(client, thread, command);
    assert_eq!(receipt["exit_code"], 0, "{command}: {receipt}");
    receipt["stdout"].as_str().unwrap().to_owned()
}

fn world() -> Option<World> {
    World::new(&["--set", "sandbox.egress=none", "--set", "sandbox.disk=128m"])
}

/// Writes a file, with its parents, by the file API.
fn write(client: &Client, thread: &str, path: &str, text: &str) {
    let target = format!("/api/threads/{thread}/fs/write?path={path}&create_dirs=true");
    client.request("PUT", &target).body(text.as_bytes()).send().expect(201);
}

/// The default project's workspace, as the machine sees it.
fn workspace(world: &World) -> PathBuf {
    world.home.path().join("workspaces/default-00000000/repo")
}

/// The same with each container engine on this machine.
fn container_worlds() -> impl Iterator<Item = World> {
    engines().into_iter().filter_map(|(_, engine)| {
        let host = format!("docker.host={}", engine.address());
        let egress = ["--set", "sandbox.egress=none", "--set", "sandbox.disk=128m"];
        World::new(&[&["--provider", "docker", "--set", &host], &egress[..]].concat())
    })
}

#[test]
fn root_manages_users_and_owners() {
    let Some(world) = world() else { return };
    manage_users_and_owners(&world);
}

#[test]
fn root_of_a_container_manages_users_and_owners() {
    container_worlds().for_each(|world| manage_users_and_owners(&world));
}

fn manage_users_and_owners(world: &World) {
    let sandbox = world.sandbox("root");
    let check = |command: &str, expected: &str| {
        let receipt = sandbox.receipt(command);
        assert_eq!(receipt["stdout"], expected, "{command}: {receipt}");
    };
    check(
        "adduser --disabled-password --gecos '' x >/dev/null && su x -c id",
        "uid=1000(x) gid=1000(x) groups=1000(x),100(users)\n",
    );
    check("touch /opt/f && chown x:x /opt/f && stat -c %U:%G /opt/f", "x:x\n");
    check("cd /tmp && tar cf t.tar -C /opt f && tar xf t.tar --same-owner && stat -c %U f", "x\n");
    check("cd /workspace && touch w && chown x w && stat -c %U w && rm w", "x\n");
    check("su x -c 'cat /etc/shadow' 2>/dev/null; echo $?", "1\n");
    // A set-user-id program works in the directories of programs only.
    check(
        "cp /usr/bin/id /usr/local/bin/rid && chmod 4755 /usr/local/bin/rid && su x -c 'rid -u'",
        "0\n",
    );
    check("cp /usr/bin/id /opt/rid && chmod 4755 /opt/rid && su x -c '/opt/rid -u'", "1000\n");
    check("chroot / id -u", "0\n");
    check("grep -E '^Cap(Eff|Bnd)' /proc/self/status | cut -f2 | sort -u", "00000000000405fb\n");
    check("su x -c 'grep CapEff /proc/self/status' | cut -f2", "0000000000000000\n");
    // No account has a password, and there are no accounts of people.
    check("cut -d: -f2 /etc/shadow | grep -vc '^[!*]'", "0\n");
    check("awk -F: '$3 >= 1001 && $3 < 65000' /etc/passwd", "");
}

/// A package with a set-user-id program, a maintainer script and a file in the place of one of the machine's.
const PACKAGE: &str = "set -e; mkdir -p /tmp/p/DEBIAN /tmp/p/usr/bin /tmp/p/var/lib/probe; cd /tmp
printf 'Package: probe\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n' > p/DEBIAN/control
printf '#!/bin/sh\nset -e\nadduser --system --group --no-create-home probe >/dev/null 2>&1\nchown probe:probe /var/lib/probe\n' > p/DEBIAN/postinst
chmod 755 p/DEBIAN/postinst; cp /usr/bin/id p/usr/bin/probe-id; chmod 4755 p/usr/bin/probe-id
dpkg-deb --root-owner-group -b p probe.deb >/dev/null; dpkg -i probe.deb >/dev/null
dpkg-query -W -f '${Status}\n' probe; stat -c %a /usr/bin/probe-id; stat -c %U /var/lib/probe";

const INSTALLED: &str = "install ok installed\n4755\nprobe\n";

#[test]
fn an_installed_package_stays_in_its_sandbox_and_its_copies() {
    let Some(world) = world() else { return };
    install_a_package(&world);
}

#[test]
fn an_installed_package_stays_in_its_container_and_its_copies() {
    container_worlds().for_each(|world| install_a_package(&world));
}

fn install_a_package(world: &World) {
    if !std::path::Path::new("/var/lib/dpkg").is_dir() {
        eprintln!("skipped: this machine has no dpkg");
        return;
    }
    let status = || fs::read("/var/lib/dpkg/status").unwrap();
    let before = status();
    let client = world.server.client();
    let one = client.post("/api/sandboxes", json!({})).expect(201);
    let one = one["thread_id"].as_str().unwrap();
    // A subshell, so that `set -e` does not end the shell.
    let packed = format!("({PACKAGE}\n)");
    assert_eq!(output(&client, one, &packed), INSTALLED);
    output(&client, one, "rm /usr/bin/env");

    // Neither the machine nor a neighbour sees it.
    assert!(!PathBuf::from("/usr/bin/probe-id").exists() && PathBuf::from("/usr/bin/env").exists());
    assert!(status() == before, "the machine's packages changed");
    let neighbour = world.sandbox("neighbour");
    let script = "ls /usr/bin/probe-id /usr/bin/env 2>/dev/null; dpkg-query -W probe 2>&1 | wc -l";
    assert_eq!(neighbour.run(script), "/usr/bin/env\n1\n");

    // A suspended sandbox, a fork and a snapshot have it.
    let check = "dpkg-query -W -f '${Status}\\n' probe; stat -c %a /usr/bin/probe-id; \
                 stat -c %U /var/lib/probe; ls /usr/bin/env 2>/dev/null || true";
    client.post(&format!("/api/sandboxes/{one}/suspend"), json!({})).expect(200);
    assert_eq!(output(&client, one, check), INSTALLED);
    let fork = client.post(&format!("/api/sandboxes/{one}/fork"), json!({})).expect(201);
    assert_eq!(output(&client, fork["thread_id"].as_str().unwrap(), check), INSTALLED);
    client.post(&format!("/api/sandboxes/{one}/snapshot"), json!({"name": "kept"})).expect(201);
    let later = client.post("/api/sandboxes", json!({"snapshot": "kept"})).expect(201);
    assert_eq!(output(&client, later["thread_id"].as_str().unwrap(), check), INSTALLED);
    output(&client, one, "dpkg --purge probe >/dev/null 2>&1; ! test -e /usr/bin/probe-id");
}

#[test]
fn set_id_files_in_a_workspace_give_no_right_on_the_machine() {
    let Some(world) = world() else { return };
    create_set_id_files(&world);
}

#[test]
fn set_id_files_of_a_container_give_no_right_on_the_machine() {
    container_worlds().for_each(|world| create_set_id_files(&world));
}

fn create_set_id_files(world: &World) {
    let client = world.server.client();
    // The workspace is used without capabilities first, so its files belong to the users of the machine.
    client.put("/api/threads/old", json!({"sandbox": {"capabilities": "none"}})).expect(201);
    assert_eq!(output(&client, "old", "mkdir d; echo old > d/f; stat -c %u:%g d/f"), "0:0\n");
    assert_eq!(fs::metadata(workspace(world).join("d/f")).unwrap().uid(), 0);
    let sandbox = world.sandbox("root");
    let script = "cp /bin/true s && chmod 6755 s && stat -c %a:%u:%g s; echo new >> d/f; \
                  touch u && chown 1000:100 u; setcap cap_sys_admin+ep s 2>/dev/null && echo SETCAP";
    assert_eq!(sandbox.run(script), "6755:0:0\n");
    for (name, user, group) in [("s", 0, 0), ("d/f", 0, 0), ("u", 1000, 100), ("", 0, 0)] {
        let kind = fs::metadata(workspace(world).join(name)).unwrap();
        assert!(kind.uid() >= SHARED_USERS && kind.gid() >= SHARED_USERS, "{name}: {kind:?}");
        assert_eq!((kind.uid() % 65_536, kind.gid() % 65_536), (user, group), "{name}");
    }
    // The file API shows and creates files with the numbers of the sandbox.
    write(&client, "root", "/workspace/by-api/f", "x");
    assert_eq!(sandbox.run("stat -c %u:%g by-api by-api/f; echo y >> by-api/f"), "0:0\n0:0\n");
    // A sandbox without capabilities shares the workspace, and creates no set-id file.
    let after = "id -u; cat d/f; echo z > d/g; chmod 4755 d/g 2>/dev/null; stat -c %a:%u d/g";
    client.delete("/api/threads/old").expect_success();
    client.put("/api/threads/none", json!({"sandbox": {"capabilities": "none"}})).expect(201);
    assert_eq!(output(&client, "none", after), "0\nold\nnew\n644:0\n");
    assert!(fs::metadata(workspace(world).join("d/g")).unwrap().uid() >= SHARED_USERS);
}

#[test]
fn files_written_by_the_api_belong_to_root_inside() {
    let Some(world) = world() else { return };
    let client = world.server.client();
    let sandbox = world.sandbox("files");
    sandbox.run("true");
    for path in ["/opt/a/b", "/etc/probe.conf", "/usr/local/share/probe", "/tmp/probe", "/root/x"] {
        write(&client, "files", path, "text");
        let script = format!("stat -c %u:%g {path} && cat {path} && echo more >> {path}");
        assert_eq!(sandbox.run(&script), "0:0\ntext", "{path}");
    }
    assert_eq!(sandbox.run("stat -c %u:%g /opt/a"), "0:0\n");
    client.post("/api/threads/files/fs/mkdir", json!({"path": "/srv/d"})).expect_success();
    let renamed = json!({"from": "/opt/a/b", "to": "/srv/d/b"});
    client.post("/api/threads/files/fs/move", renamed).expect_success();
    assert_eq!(sandbox.run("cat /srv/d/b; stat -c %u:%g /srv/d"), "textmore\n0:0\n");
    assert!(!PathBuf::from("/usr/local/share/probe").exists());

    // A file request wakes the sandbox, whether it was paused or suspended.
    let lease = client.get("/api/threads/files/lease").expect(200)["lease_id"].clone();
    for verb in ["pause", "suspend"] {
        let target = format!("/api/leases/{}/{verb}", lease.as_str().unwrap());
        client.post(&target, json!({})).expect(200);
        let read = client.get("/api/threads/files/fs/read?path=/srv/d/b");
        assert_eq!((read.status, read.text()), (200, "textmore\n".to_owned()), "{verb}");
        let lease = client.get("/api/threads/files/lease").expect(200);
        assert_eq!(lease["instance"]["state"], "running", "{verb}");
    }
}

#[test]
fn root_is_root_in_an_image_too() {
    let Some(world) = world() else { return };
    let root = world.home.path().join("source");
    small_root(&root, &["/usr/bin/id", "/usr/bin/mv", "/usr/bin/setpriv"]);
    let program = root.join("usr/bin/rid");
    fs::copy("/usr/bin/id", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    fs::write(root.join("usr/one"), "shared\n").unwrap();
    fs::hard_link(root.join("usr/one"), root.join("usr/two")).unwrap();
    let (home, source) = (world.home.path().to_str().unwrap(), root.to_str().unwrap());
    let imported = run(&["image", "import", "tools", source], &[("STEAD_HOME", home)]);
    assert!(imported.status.success(), "{imported:?}");

    let client = world.server.client();
    let check = |thread: &str, settings: Value, command: &str, expected: &str| {
        let body = json!({"provider": "namespace", "sandbox": settings});
        client.put(&format!("/api/threads/{thread}"), body).expect_success();
        let receipt = exec(&client, thread, command);
        assert_eq!(receipt["stdout"], expected, "{thread}: {command}: {receipt}");
    };
    let image = json!({"image": "tools"});
    let user = "setpriv --reuid 1000 --regid 1000 --clear-groups";
    check("image", image.clone(), &format!("{user} id -u; {user} /usr/bin/rid -u"), "1000\n0\n");
    // Packages do this to programs with two names.
    let rename = "echo more >> /usr/one; mv /usr/one /usr/three && cat /usr/two /usr/three";
    check("image", image, rename, "shared\nshared\nmore\n");
    let none = json!({"image": "tools", "capabilities": "none"});
    check("none", none, "rid -u; cat /usr/one", "0\nshared\n");
    let own = fs::metadata(world.home.path().join("images/tools/rootfs/usr/bin/rid")).unwrap();
    assert_eq!(own.uid(), 0, "the image is not changed");
}

/// A wheel of pure Python: an archive with a module and its description.
const WHEEL: &str = "cd /tmp && python3 - <<'EOF'
import zipfile
with zipfile.ZipFile('probe_wheel-1-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('probe_wheel.py', 'ANSWER = 42')
    info = 'probe_wheel-1.dist-info/'
    wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: probe-wheel\\nVersion: 1\\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(info + 'RECORD', '')
EOF
pip install --quiet --break-system-packages --no-index ./probe_wheel-1-py3-none-any.whl 2>&1 \
    | grep -v 'as the .root. user'
cd / && python3 -c 'import probe_wheel; print(probe_wheel.ANSWER)'";

#[test]
fn a_python_package_installed_into_the_system_stays_in_its_sandbox_and_its_copies() {
    let settings = ["sandbox.egress=none", "sandbox.disk=128m", "sandbox.memory=512m"];
    let Some(world) = World::new(&settings.map(|it| ["--set", it]).concat()) else { return };
    let client = world.server.client();
    let one = client.post("/api/sandboxes", json!({})).expect(201);
    let one = one["thread_id"].as_str().unwrap();
    if exec(&client, one, "pip --version")["exit_code"] != 0 {
        eprintln!("skipped: this machine has no pip that sandboxes see");
        return;
    }
    assert_eq!(output(&client, one, WHEEL), "42\n");
    // Neither the machine nor a neighbour has it.
    let import = "python3 -c 'import probe_wheel; print(probe_wheel.ANSWER)'";
    let on_machine = Command::new("/usr/bin/python3").args(["-c", "import probe_wheel"]).output();
    assert!(!on_machine.unwrap().status.success());
    assert_ne!(exec(&client, "neighbour", import)["exit_code"], 0);

    client.post(&format!("/api/sandboxes/{one}/suspend"), json!({})).expect(200);
    assert_eq!(output(&client, one, import), "42\n");
    let fork = client.post(&format!("/api/sandboxes/{one}/fork"), json!({})).expect(201);
    assert_eq!(output(&client, fork["thread_id"].as_str().unwrap(), import), "42\n");
    client.post(&format!("/api/sandboxes/{one}/snapshot"), json!({"name": "wheel"})).expect(201);
    let later = client.post("/api/sandboxes", json!({"snapshot": "wheel"})).expect(201);
    assert_eq!(output(&client, later["thread_id"].as_str().unwrap(), import), "42\n");
}

#[test]
fn private_files_of_the_machine_are_hidden() {
    let Some(world) = world() else { return };
    let sandbox: Sandbox = world.sandbox("private");
    let script = "find /usr /var/lib/dpkg ! -type l ! -perm -o+r 2>/dev/null | head -3";
    assert_eq!(sandbox.run(script), "");
}

/// Skipped with a message where no Debian mirror can be reached.
#[test]
fn packages_are_installed_from_a_mirror() {
    if !has_sandboxes() || !std::path::Path::new("/usr/bin/apt-get").exists() {
        eprintln!("skipped: this machine has no sandboxes or no apt");
        return;
    }
    let home = Home::new();
    let set = ["--provider", "namespace", "--set", "sandbox.disk=2g", "--set", "sandbox.warm=0"];
    let server = Server::start_with(&home, &set);
    let client = server.client();
    let updated = exec(&client, "t", "apt-get update 2>&1");
    if updated["exit_code"] != 0 || updated["stdout"].as_str().unwrap().contains("Could not") {
        eprintln!("skipped: no mirror can be reached: {}", updated["stdout"]);
        return;
    }
    let install = "DEBIAN_FRONTEND=noninteractive apt-get install -y --reinstall jq sudo >/tmp/log 2>&1 \
                   || { tail -20 /tmp/log; false; }";
    output(&client, "t", install);
    assert_eq!(output(&client, "t", "echo '{\"a\":1}' | jq .a"), "1\n");
    output(
        &client,
        "t",
        "adduser --disabled-password --gecos '' x >/dev/null; adduser x sudo >/dev/null",
    );
    output(&client, "t", "echo 'x ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/x");
    assert_eq!(output(&client, "t", "su x -c 'sudo id -u'"), "0\n");
}
