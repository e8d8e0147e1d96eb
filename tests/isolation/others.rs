//! Two sandboxes side by side.

use std::collections::BTreeMap;

use crate::world::World;

#[test]
fn a_sandbox_sees_nothing_of_another() {
    let Some(world) = World::new(&[]) else { return };
    let (one, two) = (world.sandbox("one"), world.sandbox("two"));
    let mark = format!("other-{}", world.canary);
    one.run(&format!(
        "echo {mark} > /tmp/{mark}; echo {mark} > /dev/shm/{mark}; echo {mark} > /var/tmp/{mark}; \
         echo {mark} > /root/{mark}; perl -e 'sleep 600' {mark} & \
         perl -MIO::Socket::INET -e '$l = IO::Socket::INET->new(Listen => 5, LocalPort => 8099); sleep 600' & \
         perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un(\"\\0{mark}\")); listen(S, 1); sleep 600' & \
         ipcmk -M 4096 >/dev/null"
    ));
    let address = one
        .run("hostname -I 2>/dev/null || ip -4 -o addr show eth0 | grep -o '198[0-9.]*' | head -1");
    let address = address.trim();
    for (name, script) in [
        ("its files", format!("find / -xdev -name '{mark}' 2>/dev/null | head -1")),
        ("its shared memory", format!("ls /dev/shm | grep {mark}")),
        (
            "its processes",
            format!(
                "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 600.*{mark}' | grep -v '^0'"
            ),
        ),
        ("its abstract sockets", format!("grep {mark} /proc/net/unix")),
        ("its segments", "ipcs -m | grep ^0x".to_owned()),
        (
            "its address",
            format!(
                "timeout 3 bash -c 'exec 9<>/dev/tcp/{address}/8099' 2>/dev/null && echo reached"
            ),
        ),
    ] {
        let seen = two.run(&script);
        println!(
            "{:6} {:10} {name}",
            if seen.trim().is_empty() { "SAFE" } else { "BREACH" },
            "others"
        );
        assert_eq!(seen.trim(), "", "{name} can be seen from another sandbox");
    }
    let users =
        |sandbox: &crate::world::Sandbox| sandbox.run("awk '{print $2}' /proc/self/uid_map");
    assert_ne!(users(&one), users(&two), "two sandboxes have the same users");
}

/// A process that opens a file can watch it (`inotify`) and lock it (`flock`), so sandboxes on a shared file system
/// could observe each other and exchange messages.
#[test]
fn sandboxes_share_no_file_system() {
    for capabilities in ["root", "none"] {
        let capabilities = format!("sandbox.capabilities={capabilities}");
        let more = ["--set", "sandbox.egress=none", "--set", &capabilities];
        let Some(world) = World::new(&more) else { return };
        let (one, two) = (world.sandbox("one"), world.sandbox("two"));
        let mounts = |sandbox: &crate::world::Sandbox| -> BTreeMap<String, String> {
            let listed = sandbox.run("awk '{print $3, $5}' /proc/self/mountinfo");
            let pairs = listed.lines().filter_map(|line| line.split_once(' '));
            // The files of a project are shared intentionally.
            let own =
                |path: &str| !path.starts_with("/workspace") && !path.starts_with("/memories");
            let pairs = pairs.filter(|(_, path)| own(path));
            pairs.map(|(device, path)| (device.to_owned(), path.to_owned())).collect()
        };
        let (of_one, of_two) = (mounts(&one), mounts(&two));
        assert!(of_one.len() > 5, "{of_one:?}");
        let shared: Vec<_> = of_one.iter().filter(|(at, _)| of_two.contains_key(*at)).collect();
        let verdict = if shared.is_empty() { "SAFE" } else { "BREACH" };
        println!("{verdict:6} {:10} file systems, {capabilities}", "others");
        assert_eq!(shared, Vec::<(&String, &String)>::new(), "{capabilities}");
        // The devices work, and so does the program of the host.
        let devices = "echo x >/dev/null; head -c 3 /dev/zero | od -An -tx1; head -c 9 /dev/urandom | wc -c; \
            echo x 2>/dev/null >/dev/full || echo full; tty </dev/tty >/dev/null && echo tty; stat -c '%a %t:%T' /dev/null";
        assert_eq!(one.run(devices), " 00 00 00\n9\nfull\ntty\n666 1:3\n");
        let held = "exec 8</dev/null 9<$(ls /.stead/* | head -1) && flock 8 && flock 9";
        one.run(held);
        assert_eq!(
            two.run(&format!("timeout 5 sh -c '{held}' && echo free")),
            "free\n",
            "a lock of one sandbox is seen by another"
        );
    }
}

/// The processes that a local shell left behind are ended with it, and no others.
#[test]
fn the_end_of_a_local_shell_leaves_sandboxes_alone() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let sandbox = world.sandbox("beside");
    sandbox.run("sleep 600 & sleep 601 &");
    let client = world.server.client();
    client.put("/api/threads/local", serde_json::json!({"provider": "local"})).expect_success();
    let body = serde_json::json!({"command": "sleep 602 & true"});
    client.post("/api/threads/local/exec", body).expect(200);
    client.delete("/api/threads/local").expect_success();
    let left = sandbox.run("pgrep -c -x sleep");
    assert_eq!(left.trim(), "2", "processes of the sandbox were ended");
}

/// Resources that the kernel counts per machine or per user cannot be exhausted by one sandbox.
#[test]
fn one_sandbox_cannot_exhaust_resources_of_others() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let (one, two) = (world.sandbox("one"), world.sandbox("two"));
    for (name, script, mine) in [
        (
            "watches of files",
            "perl -e 'while (($f = syscall(294, 0)) >= 0) { $n++; last if $n > 5000 } print \"$n\\n\"; close STDOUT; sleep 600'",
            "perl -e 'exit(syscall(294, 0) < 0 ? 1 : 0)' && echo there",
        ),
        (
            "terminals",
            "perl -e 'while (open(my $f, \"+<\", \"/dev/ptmx\")) { push @f, $f; last if @f > 5000 } print scalar(@f), \"\\n\"; close STDOUT; sleep 600'",
            "perl -e 'exit(open(my $f, \"+<\", \"/dev/ptmx\") ? 0 : 1)' && echo there",
        ),
        (
            "pending signals",
            "perl -e '$SIG{RTMIN} = \"IGNORE\"; $s = pack(\"Q16\", 1 << 33); syscall(14, 0, $s, 0, 8); $i = pack(\"iiiiLLq12\", 34, 0, -1, 0, $$, 0); while (syscall(129, $$, 34, $i) >= 0) { last if ++$n > 100000 } print \"$n\\n\"; close STDOUT; sleep 600'",
            "perl -e 'use POSIX; $t = pack(\"i\", 0); exit(syscall(222, 0, 0, $t) < 0 ? 1 : 0)' && echo there",
        ),
    ] {
        let used = one.run(&format!(
            "{script} > /tmp/used & until [ -s /tmp/used ]; do sleep 0.02; done; cat /tmp/used; rm /tmp/used"
        ));
        let seen = two.run(mine);
        let verdict = if seen == "there\n" { "SAFE" } else { "BREACH" };
        println!("{verdict:6} {:10} {name}, {} used by one", "others", used.trim());
        assert_eq!(seen, "there\n", "{name} are exhausted by another sandbox");
        // The terminal of a new sandbox needs one of each.
        let three = world.sandbox(&format!("three-{}", name.replace(' ', "-")));
        assert_eq!(three.run("echo here"), "here\n");
    }
}
