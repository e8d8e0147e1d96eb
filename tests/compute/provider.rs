//! The contract of every provider, run against each that this machine supports. Vendors that can run a
//! host are tested twice: with the host, and with commands only.

use std::{
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use cloud::TerminalRuntime;
use machine::namespace::Check;
use machine::with_rights_of;
use model::{Instance, InstanceId, LeaseId, TerminalId, Timestamp};
use provider::{
    CopyTo, Disks, Fidelity, Intent, Local, MountedPaths, Observed, Provider, ProviderError,
    TerminalMounts,
};

use super::{
    confined, containers, files,
    kubernetes::{self, Cluster},
    link::{Link, TICKING},
    local, namespace,
    vendor::{COMMANDERS, KINDS, Kind, Vendor},
};
use harness::{Home, WAIT_TIMEOUT, engines};

/// One provider with a separate home.
struct Fixture {
    /// The vendor behind the provider.
    vendor: Option<(Kind, Vendor)>,
    home: Home,
    provider: Arc<dyn Provider>,
}

/// Set in the run of a user who is not root.
const AS_USER: &str = "STEAD_TESTS_AS_USER";

fn is_user() -> bool {
    std::env::var_os(AS_USER).is_some()
}

fn fixtures() -> Vec<Fixture> {
    if is_user() {
        let home = Home::new();
        let provider = Arc::new(confined(home.path()));
        return vec![Fixture { vendor: None, home, provider }];
    }
    if let Some(cluster) = Cluster::of_tests() {
        let home = Home::new();
        let provider = Arc::new(cluster.provider(home.path()));
        return vec![Fixture { vendor: None, home, provider }];
    }
    let plain = Home::new();
    let provider = Arc::new(local(plain.path()));
    let mut fixtures = vec![Fixture { vendor: None, home: plain, provider }, without_cgroup()];
    fixtures.extend(sandboxed());
    fixtures.extend(KINDS.into_iter().filter_map(|kind| at_a_vendor(kind, TerminalRuntime::Host)));
    fixtures.extend(
        COMMANDERS.into_iter().filter_map(|kind| at_a_vendor(kind, TerminalRuntime::Remote)),
    );
    fixtures.extend(contained());
    fixtures
}

fn contained() -> impl Iterator<Item = Fixture> {
    engines().into_iter().map(|(_, engine)| {
        let home = Home::new();
        let provider = Arc::new(containers(home.path(), &engine.address()));
        Fixture { vendor: None, home, provider }
    })
}

fn at_a_vendor(kind: Kind, runtime: TerminalRuntime) -> Option<Fixture> {
    let (vendor, home) = (Vendor::of(kind)?, Home::new());
    let provider = Arc::new(vendor.provider(kind, home.path(), runtime));
    Some(Fixture { vendor: Some((kind, vendor)), home, provider })
}

/// The directories of instances in a home, by kind of provider.
const INSTANCE_DIRECTORIES: [&str; 3] = ["run", "sandboxes", "containers"];

fn sandboxed() -> Option<Fixture> {
    let home = Home::new();
    let provider = namespace(home.path());
    let missing = Check::inspect(&provider).missing();
    if missing.is_empty() {
        return Some(Fixture { vendor: None, provider: Arc::new(provider), home });
    }
    eprintln!("skipped: no namespace sandboxes on this machine: {}", missing.join("; "));
    None
}

/// The local provider as on a machine without writable cgroups.
fn without_cgroup() -> Fixture {
    let home = Home::new();
    let executable = home.path().join("stead");
    let script = format!("#!/bin/sh\nexec {} \"$@\" --no-cgroup\n", harness::program());
    std::fs::write(&executable, script).unwrap();
    std::fs::set_permissions(&executable, PermissionsExt::from_mode(0o700)).unwrap();
    let provider = Arc::new(Local::beneath(home.path(), "run", &executable));
    Fixture { vendor: None, home, provider }
}

impl Drop for Fixture {
    /// Also after a failed test, nothing keeps running.
    fn drop(&mut self) {
        let mut command = std::process::Command::new(harness::program());
        let _ = command.args(["namespace", "end"]).arg(self.home.path()).status();
    }
}

impl Fixture {
    async fn create(&self, intent: &Intent) -> Instance {
        let created = self.provider.create(intent).await.unwrap();
        Instance {
            instance_id: intent.instance_id.clone(),
            generation: intent.generation,
            reference: created.reference,
            started_at: Timestamp::now(),
        }
    }

    async fn link(&self, instance: &Instance) -> Link {
        Link::new(self.provider.connect(instance).await.unwrap().stream).await
    }

    /// Opens a terminal in an instance.
    async fn open(&self, link: &mut Link, instance: &Instance, argv: &[&str]) -> TerminalId {
        let terminal = TerminalId::fresh();
        let dir = self.home.path().join("terminals").join(terminal.as_str());
        std::fs::create_dir_all(&dir).unwrap();
        let wanted =
            TerminalMounts { terminal: terminal.clone(), dir, mounts: vec![], workspace: None };
        let mounted = match self.provider.mounts() {
            Some(mounts) => mounts.mount(instance, &wanted).await.unwrap(),
            None => MountedPaths::unchanged(&wanted),
        };
        link.open_at(&terminal, &mounted.dir, argv).await;
        terminal
    }

    async fn open_ticking(&self, link: &mut Link, instance: &Instance) {
        let terminal = self.open(link, instance, TICKING).await;
        link.attach(&terminal).await;
    }

    /// Returns the instance directories on disk.
    fn left(&self) -> Vec<PathBuf> {
        let dirs = INSTANCE_DIRECTORIES.map(|name| self.home.path().join(name));
        let entries = dirs.into_iter().filter_map(|dir| std::fs::read_dir(dir).ok());
        entries.flatten().flatten().map(|entry| entry.path()).collect()
    }

    /// Kills the host, which is the process that listens on the socket.
    fn kill_host(&self, instance: &InstanceId) {
        let dirs =
            INSTANCE_DIRECTORIES.map(|name| self.home.path().join(name).join(instance.as_str()));
        let far = self.home.path().join("inside").join(format!("stead-{instance}"));
        let dir = dirs.into_iter().chain([far]).find(|dir| dir.is_dir());
        let stream = host::client::connect(&dir.unwrap()).unwrap();
        let pid = rustix::net::sockopt::socket_peercred(&stream).unwrap().pid;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    fn disks(&self) -> &dyn Disks {
        self.provider.disks().expect("the provider keeps disks")
    }

    async fn observed(&self, instance: &Instance) -> Observed {
        self.provider.inspect(instance).await.unwrap()
    }
}

fn intent(generation: u64) -> Intent {
    Intent {
        lease_id: LeaseId::fresh(),
        generation,
        instance_id: InstanceId::fresh(),
        spec: serde_json::Value::Null,
    }
}

#[tokio::test]
async fn an_instance_is_created_once_and_found_by_its_label() {
    for fixture in fixtures() {
        let provider = &fixture.provider;
        let intent = intent(3);
        assert_eq!(provider.find_by_label(None).await.unwrap(), []);
        let (one, two) = tokio::join!(fixture.create(&intent), fixture.create(&intent));
        assert_eq!(one.reference, two.reference, "two requests create one instance");
        fixture.create(&intent).await;
        let found = provider.find_by_label(Some(&intent.lease_id)).await.unwrap();
        assert_eq!(found.len(), 1);
        let found = &found[0];
        assert_eq!(
            (&found.instance_id, found.generation, found.observed),
            (&intent.instance_id, 3, Observed::Running)
        );
        assert_eq!(provider.find_by_label(Some(&LeaseId::fresh())).await.unwrap(), []);
        provider.destroy(&one).await.unwrap();
        assert_eq!(provider.find_by_label(None).await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_missing_instance_is_reported_as_gone_and_ending_it_succeeds() {
    for fixture in fixtures() {
        let provider = &fixture.provider;
        let nothing = Instance {
            instance_id: InstanceId::fresh(),
            generation: 1,
            reference: String::new(),
            started_at: Timestamp::now(),
        };
        assert_eq!(fixture.observed(&nothing).await, Observed::Gone);
        let is_gone = |result: Result<(), ProviderError>| {
            assert!(matches!(result, Err(ProviderError::Gone { .. })), "{result:?}");
        };
        is_gone(provider.pause(&nothing).await);
        is_gone(provider.resume(&nothing).await);
        is_gone(provider.connect(&nothing).await.map(drop));
        is_gone(provider.metrics(&nothing).await.map(drop));
        provider.destroy(&nothing).await.unwrap();
    }
}

#[tokio::test]
async fn a_pause_stops_every_process_and_a_resume_continues_them() {
    for fixture in fixtures() {
        let provider = &fixture.provider;
        if provider.capabilities().pause != Fidelity::Memory {
            continue;
        }
        let instance = fixture.create(&intent(1)).await;
        let mut link = fixture.link(&instance).await;
        fixture.open_ticking(&mut link, &instance).await;
        for _ in 0..3 {
            provider.pause(&instance).await.unwrap();
            provider.pause(&instance).await.unwrap();
            assert_eq!(fixture.observed(&instance).await, Observed::Paused);
            assert!(link.falls_silent().await, "a paused program still prints");
            provider.resume(&instance).await.unwrap();
            provider.resume(&instance).await.unwrap();
            assert_eq!(fixture.observed(&instance).await, Observed::Running);
            link.ticks().await;
        }
        provider.destroy(&instance).await.unwrap();
    }
}

#[tokio::test]
async fn a_paused_instance_can_be_ended() {
    for fixture in fixtures() {
        if fixture.provider.capabilities().pause == Fidelity::None {
            continue;
        }
        let instance = fixture.create(&intent(1)).await;
        let mut link = fixture.link(&instance).await;
        fixture.open_ticking(&mut link, &instance).await;
        fixture.provider.pause(&instance).await.unwrap();
        fixture.provider.destroy(&instance).await.unwrap();
        assert_eq!(fixture.observed(&instance).await, Observed::Gone);
        assert_eq!(living(fixture.home.path()), Vec::<String>::new());
    }
}

#[tokio::test]
async fn an_ended_instance_leaves_nothing_behind() {
    for fixture in fixtures() {
        let instance = fixture.create(&intent(1)).await;
        let mut link = fixture.link(&instance).await;
        let mark = fixture.home.path().display().to_string();
        // A child that ignores signals, one in a new session, and one whose parent has exited.
        let script = format!(
            "trap '' HUP INT TERM; setsid sh -c 'sleep 1000; : {mark}' & \
             (setsid sh -c 'trap \"\" HUP TERM; sleep 1001; : {mark}' &) ; \
             echo up; while :; do sleep 1; : {mark}; done"
        );
        fixture.open(&mut link, &instance, &["/bin/sh", "-c", &script]).await;
        let deadline = std::time::Instant::now() + WAIT_TIMEOUT;
        while living(fixture.home.path()).len() < 3 {
            let seen = living(fixture.home.path());
            assert!(std::time::Instant::now() < deadline, "the processes do not start: {seen:?}");
            tokio::task::yield_now().await;
        }
        fixture.provider.destroy(&instance).await.unwrap();
        assert_eq!(living(fixture.home.path()), Vec::<String>::new());
        assert_eq!(fixture.left(), Vec::<PathBuf>::new());
    }
}

#[tokio::test]
async fn a_host_that_was_killed_is_gone_and_its_processes_can_be_ended() {
    for fixture in fixtures() {
        if !fixture.provider.capabilities().hosted {
            continue;
        }
        let intent = intent(1);
        let instance = fixture.create(&intent).await;
        let mut link = fixture.link(&instance).await;
        let mark = fixture.home.path().display().to_string();
        let script = format!("trap '' HUP; while :; do sleep 1; : {mark}; done");
        fixture.open(&mut link, &instance, &["/bin/sh", "-c", &script]).await;
        let in_a_pod = fixture.provider.name() == "kubernetes";
        match in_a_pod {
            true => kubernetes::kill_host(&*fixture.provider, fixture.home.path(), &instance).await,
            false => fixture.kill_host(&intent.instance_id),
        }
        if fixture.vendor.is_some() || in_a_pod {
            // The sandbox still exists with all its files: it gets another host.
            assert_eq!(fixture.observed(&instance).await, Observed::Running);
            drop(fixture.link(&instance).await);
            fixture.provider.destroy(&instance).await.unwrap();
            assert_eq!(living(fixture.home.path()), Vec::<String>::new());
            continue;
        }
        let deadline = std::time::Instant::now() + WAIT_TIMEOUT;
        while fixture.observed(&instance).await != Observed::Gone {
            assert!(std::time::Instant::now() < deadline, "its socket is still open");
        }
        fixture.provider.destroy(&instance).await.unwrap();
        assert_eq!(living(fixture.home.path()), Vec::<String>::new());
    }
}

#[tokio::test]
async fn metrics_are_measured() {
    for fixture in fixtures() {
        let provider = &fixture.provider;
        if !provider.capabilities().metrics {
            continue;
        }
        let instance = fixture.create(&intent(1)).await;
        let quiet = provider.metrics(&instance).await.unwrap();
        // The host, if there is one.
        let alone = u64::from(provider.capabilities().hosted);
        assert_eq!(quiet.processes, alone, "{quiet:?}");
        assert!(alone == 0 || quiet.memory_bytes > 100_000, "{quiet:?}");
        let mut link = fixture.link(&instance).await;
        let script = "echo some output; while :; do :; done";
        fixture.open(&mut link, &instance, &["/bin/sh", "-c", script]).await;
        let deadline = std::time::Instant::now() + WAIT_TIMEOUT;
        let busy = loop {
            let busy = provider.metrics(&instance).await.unwrap();
            if busy.cpu_us > quiet.cpu_us + 100_000 && busy.disk_bytes > 0 {
                break busy;
            }
            assert!(std::time::Instant::now() < deadline, "{busy:?}");
            tokio::task::yield_now().await;
        };
        assert!(busy.processes > alone && busy.memory_bytes > 0, "{busy:?}");
        provider.destroy(&instance).await.unwrap();
    }
}

/// The providers whose instances have their own disks. Never the machine's disk: the tests write to it.
fn with_disks() -> impl Iterator<Item = Fixture> {
    let disks = (!is_user()).then(|| sandboxed().into_iter().chain(contained()));
    disks.into_iter().flatten().inspect(|fixture| {
        assert_eq!(fixture.provider.profile().suspend, Fidelity::Filesystem);
    })
}

/// The files of an instance, as this machine sees them.
struct Files {
    root: PathBuf,
    owner: (u32, u32),
}

impl Files {
    /// Refuses a root that is the machine's own.
    async fn of(fixture: &Fixture, instance: &Instance) -> Files {
        use std::os::unix::fs::MetadataExt;
        let mounts = fixture.provider.mounts().expect("an instance has its own paths");
        let root = mounts.root(instance).await.unwrap().expect("a root");
        let (found, machine) = (std::fs::metadata(&root).unwrap(), std::fs::metadata("/").unwrap());
        let which = |kind: &std::fs::Metadata| (kind.dev(), kind.ino());
        assert_ne!(which(&found), which(&machine), "{}", fixture.provider.name());
        Files { owner: (found.uid(), found.gid()), root }
    }

    fn write(&self, file: &str, text: &str) {
        with_rights_of(self.owner, || std::fs::write(self.root.join(file), text)).unwrap();
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.root.join(file)).unwrap()
    }

    fn has(&self, file: &str) -> bool {
        self.root.join(file).exists()
    }

    fn remove_dir(&self, dir: &str) {
        with_rights_of(self.owner, || std::fs::remove_dir(self.root.join(dir))).unwrap();
    }

    /// Writes this many bytes to a file; returns the error as text.
    fn fill(&self, file: &str, bytes: u64) -> std::io::Result<()> {
        with_rights_of(self.owner, || {
            let mut stream = std::fs::File::create(self.root.join(file))?;
            std::io::copy(&mut std::io::repeat(1).take(bytes), &mut stream)?;
            stream.sync_all()
        })
    }
}

#[tokio::test]
async fn a_disk_holds_no_more_than_its_limit() {
    for fixture in with_disks() {
        let provider = &fixture.provider;
        let name = provider.name();
        let instance = fixture.create(&intent(1)).await;
        let limit = provider.metrics(&instance).await.unwrap().limits.unwrap().disk_bytes.unwrap();
        assert_eq!(limit, 64 << 20, "{name}");
        let files = Files::of(&fixture, &instance).await;
        // The limit holds for every directory.
        for dir in ["opt", "tmp", "var/lib", "root", "home"] {
            let file = format!("{dir}/fill");
            let full = files.fill(&file, limit).unwrap_err();
            assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{name}: {dir}");
            let used = provider.metrics(&instance).await.unwrap().disk_bytes;
            assert!(used > limit / 2 && used <= limit, "{name}: {dir}: {used}");
            files.write(&file, "");
        }
        provider.destroy(&instance).await.unwrap();
    }
}

/// Two file systems on one disk would destroy each other.
#[tokio::test]
async fn a_disk_is_used_by_one_instance_at_a_time() {
    let Some(fixture) = (!is_user()).then(sandboxed).flatten() else { return };
    let first = intent(1);
    let instance = fixture.create(&first).await;
    let second = Intent { generation: 2, instance_id: InstanceId::fresh(), ..first.clone() };
    let refused = fixture.provider.create(&second).await.unwrap_err();
    let error = format!("{:#}", anyhow::Error::from(refused));
    assert!(error.contains("in use by another"), "{error}");
    assert_eq!(fixture.observed(&instance).await, Observed::Running);
    fixture.provider.destroy(&instance).await.unwrap();
    let third = Intent { generation: 3, instance_id: InstanceId::fresh(), ..first };
    let instance = fixture.create(&third).await;
    fixture.provider.destroy(&instance).await.unwrap();
}

#[tokio::test]
async fn files_survive_an_instance_and_are_deleted_with_their_lease() {
    for fixture in with_disks() {
        let provider = &fixture.provider;
        let name = provider.name();
        let first = intent(1);
        let instance = fixture.create(&first).await;
        let files = Files::of(&fixture, &instance).await;
        files.write("opt/file", "kept");
        // A file of the image is changed, and a directory of it is deleted.
        files.write("etc/hostname", "changed");
        files.remove_dir("media");
        provider.destroy(&instance).await.unwrap();
        assert_eq!(
            fixture.disks().kept().await.unwrap(),
            std::slice::from_ref(&first.lease_id),
            "{name}"
        );
        let next = Intent { generation: 2, instance_id: InstanceId::fresh(), ..first.clone() };
        let instance = fixture.create(&next).await;
        let files = Files::of(&fixture, &instance).await;
        assert_eq!(files.read("opt/file"), "kept", "{name}");
        assert_eq!(files.read("etc/hostname"), "changed", "{name}");
        assert!(!files.has("media"), "{name}");
        provider.destroy(&instance).await.unwrap();
        fixture.disks().forget(&first.lease_id).await.unwrap();
        fixture.disks().forget(&first.lease_id).await.unwrap();
        assert_eq!(fixture.disks().kept().await.unwrap(), [], "{name}");
    }
}

#[tokio::test]
async fn a_lease_can_start_with_a_copy_of_the_files_of_another() {
    for fixture in with_disks() {
        let provider = &fixture.provider;
        let name = provider.name();
        let (one, two) = (intent(1), intent(1));
        let nothing =
            fixture.disks().copy(&one.lease_id, None, &CopyTo::Lease(LeaseId::fresh())).await;
        assert!(matches!(nothing, Err(ProviderError::Unsupported { .. })), "{nothing:?}");
        let instance = fixture.create(&one).await;
        let files = Files::of(&fixture, &instance).await;
        // Written but not synced.
        files.write("opt/file", "first");
        let to_lease = CopyTo::Lease(two.lease_id.clone());
        fixture.disks().copy(&one.lease_id, Some(&instance), &to_lease).await.unwrap();
        assert_eq!(fixture.observed(&instance).await, Observed::Running, "{name}: still running");
        let ready = CopyTo::Snapshot("ready".to_owned());
        fixture.disks().copy(&one.lease_id, Some(&instance), &ready).await.unwrap();
        files.write("opt/file", "second");
        let snapshots = fixture.disks().snapshots().await.unwrap();
        let names: Vec<&str> = snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect();
        assert_eq!(names, ["ready"], "{name}");
        let spec = serde_json::json!({"snapshot": "ready"});
        let three = Intent { spec: spec.clone(), ..intent(1) };
        provider.accepts(&spec).unwrap();
        let forked = fixture.create(&two).await;
        let begun = fixture.create(&three).await;
        assert!(fixture.disks().remove_snapshot("ready").await.unwrap(), "{name}");
        assert!(!fixture.disks().remove_snapshot("ready").await.unwrap(), "{name}");
        assert!(provider.accepts(&spec).is_err(), "{name}: the snapshot was deleted");
        for copy in [&forked, &begun] {
            let files = Files::of(&fixture, copy).await;
            assert_eq!(files.read("opt/file"), "first", "{name}");
            files.write("opt/file", "third");
        }
        assert_eq!(files.read("opt/file"), "second", "{name}");
        for instance in [&instance, &forked, &begun] {
            provider.destroy(instance).await.unwrap();
        }
    }
}

#[tokio::test]
async fn files_of_an_instance_are_used_alike_everywhere() {
    for fixture in fixtures() {
        let instance = fixture.create(&intent(1)).await;
        files::check_contract(&files::tree(&fixture.provider, &instance).await).await;
        fixture.provider.destroy(&instance).await.unwrap();
    }
}

/// Callers see exactly the capabilities that each provider has.
#[tokio::test]
async fn a_provider_offers_the_abilities_that_it_has() {
    for fixture in fixtures() {
        let provider = &fixture.provider;
        let found = (
            provider.disks().is_some(),
            provider.limits().is_some(),
            provider.egress().is_some(),
            provider.ports().is_some(),
            provider.scripts().is_some(),
            provider.mounts().is_some(),
        );
        let expected = match provider.name() {
            "namespace" if is_user() => (true, false, true, false, false, true),
            "local" => (false, false, false, true, false, false),
            "namespace" | "docker" => (true, true, true, true, false, true),
            _ => (false, false, false, false, true, true),
        };
        assert_eq!(found, expected, "{}", provider.name());
    }
}

/// The same tests by a user who is not root, for the sandboxes that such a user has.
#[test]
fn the_contract_holds_for_sandboxes_of_a_user() {
    let home = Home::new();
    let (tests, program) = (home.path().join("deps/tests"), home.path().join("stead"));
    std::fs::create_dir(home.path().join("deps")).unwrap();
    // The directory that they were built in may be private. Copied by another process: a child that another thread
    // forks meanwhile would inherit the descriptor, and a file that is open for writing cannot be executed.
    for (from, to) in
        [(std::env::current_exe().unwrap(), &tests), (harness::program().into(), &program)]
    {
        assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
        std::fs::set_permissions(to, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let as_user = |command: &mut Command| {
        command.env(AS_USER, "1").stdin(Stdio::null());
        let output = command.output().unwrap();
        let text =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.success(), text.concat())
    };
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let mut check = Command::new("setpriv");
    check.args(user).args(["unshare", "--user", "--map-root-user", "--mount", "true"]);
    if let (false, why) = as_user(&mut check) {
        eprintln!("skipped: no user without root can have sandboxes here: {why}");
        return;
    }
    let mut run = Command::new("setpriv");
    run.args(user).arg(tests).args([
        "provider::",
        "--skip",
        "the_contract_holds",
        "--test-threads",
        "2",
    ]);
    let (passed, text) = as_user(&mut run);
    println!("{text}");
    assert!(passed && !text.contains(" 0 passed"), "{text}");
}

/// Kills a host with SIGKILL.
pub fn kill_host(home: &Path, instance: &InstanceId) {
    let pid = std::fs::read_to_string(home.join("run").join(instance.as_str()).join("host.pid"));
    let pid = rustix::process::Pid::from_raw(pid.unwrap().trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Returns the command lines of live processes that contain the path of a home.
pub fn living(home: &Path) -> Vec<String> {
    let mark = home.display().to_string();
    let mut lines: Vec<String> = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()))
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(&mark))
        .collect();
    lines.sort();
    lines
}
