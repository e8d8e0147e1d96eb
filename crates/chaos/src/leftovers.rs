//! Checks that a run leaves nothing on the machine.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::server::{POLL_INTERVAL, RunDirectory, cgroup_name, cgroups, is_warm};

/// How long removal may take after the last thread was deleted.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Names that belong to this run, collected while its instances exist.
#[derive(Debug, Default)]
pub struct Traces(Mutex<InstanceNames>);

#[derive(Debug, Default)]
struct InstanceNames {
    cgroups: BTreeSet<String>,
    links: BTreeSet<String>,
    hosts: BTreeSet<i32>,
}

/// The processes and files that may exist beside the server that is checked.
#[derive(Debug, Clone, Copy)]
pub enum Remaining<'a> {
    /// These servers run, with the sandboxes that they keep ready.
    Servers(&'a [i32]),
    /// Nothing, because the servers have ended.
    Nothing,
}

impl Traces {
    /// Records the names of everything that exists, until `ended`.
    pub fn sample(&self, directory: &RunDirectory, ended: &AtomicBool) {
        while !ended.load(Ordering::Relaxed) {
            self.collect(directory);
            std::thread::sleep(5 * POLL_INTERVAL);
        }
    }

    /// Records the names of everything that exists now.
    pub fn collect(&self, directory: &RunDirectory) {
        let (instances, hosts) = (directory.instances(), directory.hosts());
        let mut names = self.0.lock();
        for instance in instances {
            names.cgroups.insert(cgroup_name(&instance));
            names.links.extend(link(&instance));
        }
        names.hosts.extend(hosts);
    }

    /// Waits until nothing is left; after the timeout, returns what is left.
    #[must_use]
    pub fn wait_until_gone(
        &self,
        directory: &RunDirectory,
        remaining: Remaining<'_>,
    ) -> BTreeSet<String> {
        let deadline = Instant::now() + REMOVAL_TIMEOUT;
        loop {
            let left = self.left(directory, remaining);
            if left.is_empty() || Instant::now() > deadline {
                return left;
            }
            std::thread::sleep(10 * POLL_INTERVAL);
        }
    }

    fn left(&self, directory: &RunDirectory, remaining: Remaining<'_>) -> BTreeSet<String> {
        let mut left = BTreeSet::new();
        let ready: Vec<_> = match remaining {
            Remaining::Servers(_) => {
                directory.instances().into_iter().filter(|path| is_warm(path)).collect()
            }
            Remaining::Nothing => Vec::new(),
        };
        let names = self.0.lock();
        let is_ready = |name: &str| ready.iter().any(|path| cgroup_name(path) == name);
        let ended: Vec<&String> = names.cgroups.iter().filter(|name| !is_ready(name)).collect();
        files(directory, remaining, &mut left);
        processes(directory.path(), remaining, &ended, &mut left);
        for name in &ended {
            left.extend(cgroups(name).iter().map(|path| format!("cgroup {}", path.display())));
        }
        mounts(directory, remaining, &mut left);
        let ready_links: Vec<String> = ready.iter().filter_map(|path| link(path)).collect();
        let links = names.links.iter().filter(|name| !ready_links.contains(name));
        network(&links.collect::<Vec<_>>(), &mut left);
        files_in_memory(&names.hosts, &mut left);
        left
    }
}

/// Returns the name of the machine's end of an instance's network connection.
fn link(instance: &Path) -> Option<String> {
    let text = fs::read_to_string(instance.join("wire")).ok()?;
    text.split_whitespace().next().map(str::to_owned)
}

/// Finds mounts below the home, and loop devices of its files.
fn mounts(directory: &RunDirectory, remaining: Remaining<'_>, left: &mut BTreeSet<String>) {
    let home = directory.home().to_string_lossy().into_owned();
    // Disks of workspaces belong to projects, which exist as long as the server.
    let workspaces = format!("{home}/workspaces/");
    let is_expected = |text: &str| match remaining {
        Remaining::Servers(_) => text.contains(&workspaces) || text.contains("/warm-"),
        Remaining::Nothing => text.contains(&workspaces),
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let below = format!(" {home}/");
    let is_left = |line: &&str| line.contains(&below) && !is_expected(line);
    left.extend(mounts.lines().filter(is_left).map(|line| format!("mount {line}")));
    for device in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = fs::read_to_string(device.path().join("loop/backing_file"));
        if let Some(file) = file.ok().filter(|file| file.starts_with(&home) && !is_expected(file)) {
            left.insert(format!("loop device of {}", file.trim()));
        }
    }
}

/// Finds interfaces by their names, and nftables rules that name them.
fn network(links: &[&String], left: &mut BTreeSet<String>) {
    if links.is_empty() {
        return;
    }
    let rules = Command::new("nft").args(["list", "ruleset"]).output();
    let rules = rules.map(|output| output.stdout).unwrap_or_default();
    let rules = String::from_utf8_lossy(&rules);
    for link in links {
        if Path::new("/sys/class/net").join(link).exists() {
            left.insert(format!("interface {link}"));
        }
        if rules.contains(&format!("\"{link}\"")) {
            left.insert(format!("nft rule for {link}"));
        }
    }
}

/// Finds the files through which a host drove its shells.
fn files_in_memory(hosts: &BTreeSet<i32>, left: &mut BTreeSet<String>) {
    for owner in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        if !owner.file_name().to_string_lossy().starts_with(".stead-") {
            continue;
        }
        for entry in fs::read_dir(owner.path()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let host = name.split('.').nth(1).and_then(|pid| pid.parse().ok());
            if host.is_some_and(|pid: i32| hosts.contains(&pid) && !is_alive(pid)) {
                left.insert(format!("files in memory {}", entry.path().display()));
            }
        }
    }
}

fn is_alive(pid: i32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn files(directory: &RunDirectory, remaining: Remaining<'_>, left: &mut BTreeSet<String>) {
    for part in ["run", "sandboxes", "disks", "containers", "container-disks", "terminals"] {
        for entry in fs::read_dir(directory.home().join(part)).into_iter().flatten().flatten() {
            // The pool keeps sandboxes ready; they belong to the server, not to a thread.
            let is_expected = matches!(remaining, Remaining::Servers(_)) && is_warm(&entry.path());
            if !is_expected {
                left.insert(format!("file {}", entry.path().display()));
            }
        }
    }
}

/// Finds processes that were started below the run's directory, by their arguments, environment or directory, and those
/// in the cgroups of instances that have ended.
fn processes(
    directory: &Path,
    remaining: Remaining<'_>,
    ended: &[&String],
    left: &mut BTreeSet<String>,
) {
    let needle = directory.to_string_lossy().into_owned();
    let servers = match remaining {
        Remaining::Servers(servers) => servers,
        Remaining::Nothing => &[],
    };
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if servers.contains(&pid) || pid == std::process::id().cast_signed() {
            continue;
        }
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let (command, environment) = (read("cmdline"), read("environ"));
        let cwd = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let groups = String::from_utf8_lossy(&read("cgroup")).into_owned();
        let contains =
            |bytes: &[u8]| bytes.windows(needle.len()).any(|window| window == needle.as_bytes());
        let is_ours = contains(&command) || contains(&environment) || cwd.starts_with(directory);
        let is_in = |name: &&String| groups.split(['/', '\n']).any(|part| part == name.as_str());
        let is_ready = matches!(remaining, Remaining::Servers(_))
            && command.windows(6).any(|window| window == b"/warm-");
        if (is_ours && !is_ready) || ended.iter().any(is_in) {
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            // A process between fork and exec still has the server's arguments for a moment.
            left.insert(format!("process {pid}: {command}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Stdio};

    use super::*;

    /// What a sandbox could leave on the machine, removed when dropped.
    struct Leftovers {
        cgroup: std::path::PathBuf,
        link: String,
        table: String,
        mount: std::path::PathBuf,
        device: String,
        process: Child,
    }

    fn run(program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    impl Leftovers {
        fn create(directory: &RunDirectory, runtime_name: &str) -> Leftovers {
            let pid = std::process::id();
            let instance = directory.home().join("sandboxes/inst_1");
            let mount = directory.home().join("mounted");
            let image = directory.home().join("disks/lease.img");
            for path in [&instance, &mount, image.parent().unwrap()] {
                fs::create_dir_all(path).unwrap();
            }
            // An instance that came from the pool.
            let label = format!("{{\"name\": \"{runtime_name}\"}}");
            fs::write(instance.join("label"), label).unwrap();
            let link = format!("steadx{}", pid % 100_000_000);
            fs::write(instance.join("wire"), &link).unwrap();
            let parents = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"];
            let parent = parents.iter().map(Path::new).find(|at| at.join("cgroup.procs").exists());
            let cgroup = parent.unwrap().join("stead").join(runtime_name);
            fs::create_dir_all(&cgroup).unwrap();
            let process = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
            fs::write(cgroup.join("cgroup.procs"), process.id().to_string()).unwrap();
            run("ip", &["link", "add", &link, "type", "veth", "peer", "name", &format!("{link}p")]);
            let table = format!("stead-leftovers-{pid}");
            run("nft", &["add", "table", "inet", &table]);
            run("nft", &["add", "chain", "inet", &table, "rules"]);
            let rule = ["add", "rule", "inet", &table, "rules", "iifname", &link, "drop"];
            run("nft", &rule);
            run("mount", &["-t", "tmpfs", "stead", mount.to_str().unwrap()]);
            fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
            let device = run("losetup", &["-f", "--show", image.to_str().unwrap()]);
            let device = device.trim().to_owned();
            Leftovers { cgroup, link, table, mount, device, process }
        }
    }

    impl Drop for Leftovers {
        fn drop(&mut self) {
            let mount = self.mount.to_string_lossy().into_owned();
            for (program, arguments) in [
                ("losetup", vec!["-d", &self.device]),
                ("umount", vec![&mount]),
                ("nft", vec!["delete", "table", "inet", &self.table]),
                ("ip", vec!["link", "delete", &self.link]),
            ] {
                let _ = Command::new(program).args(arguments).status();
            }
            let _ = self.process.kill();
            let _ = self.process.wait();
            let _ = fs::remove_dir(&self.cgroup);
        }
    }

    #[test]
    fn everything_that_a_sandbox_can_leave_on_the_machine_is_found() {
        let tools = ["ip", "nft", "losetup", "mount"];
        let has = |tool: &&str| Command::new(tool).arg("-V").output().is_ok();
        if !rustix::process::geteuid().is_root() || !tools.iter().all(has) {
            eprintln!("skipped: needs root and {tools:?}");
            return;
        }
        let parent = std::env::temp_dir().join(format!("stead-leftovers-{}", std::process::id()));
        let directory = RunDirectory::create(&parent).unwrap();
        let traces = Traces::default();
        let runtime_name = format!("warm-{}", std::process::id());
        let leftovers = Leftovers::create(&directory, &runtime_name);
        traces.collect(&directory);
        let left = traces.left(&directory, Remaining::Servers(&[]));
        for kind in ["file", "process", "cgroup", "mount", "loop device", "interface", "nft rule"] {
            let found = left.iter().any(|line| line.starts_with(&format!("{kind} ")));
            assert!(found, "no {kind} in {left:?}");
        }
        drop(leftovers);
        fs::remove_dir_all(directory.home()).unwrap();
        assert_eq!(traces.left(&directory, Remaining::Nothing), BTreeSet::new());
        fs::remove_dir_all(parent).unwrap();
    }
}
