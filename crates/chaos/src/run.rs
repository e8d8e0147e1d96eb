//! One run: start, run clients and faults, verify, delete everything, check for leftovers.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use crate::{
    client::{ChaosClient, ClientsWorld, FileAccess},
    fault::{Fault, Injector},
    http::{Http, HttpRequest},
    leftovers::{Remaining, Traces},
    plan::{self, REGISTER_THREADS},
    register::{self, RegisterAction, RegisterOperation},
    report::Report,
    server::{RunDirectory, Server},
    vendor::SandboxVendor,
};

/// The size of the home's file system for the fault `disk`.
const HOME_BYTES: u64 = 1 << 30;
/// The maximum number of operations that are printed with an anomaly.
const MAX_PRINTED_OPERATIONS: usize = 60;
/// How long the deletion of one thread may take.
const DELETION_TIMEOUT: Duration = Duration::from_secs(120);

/// The options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server's executable.
    pub binary: PathBuf,
    /// The seed of the plans of all clients and of the faults.
    pub seed: u64,
    /// How long clients run.
    pub duration: Duration,
    /// How many clients there are.
    pub clients: usize,
    /// The provider of all threads.
    pub provider: String,
    /// The faults that are injected.
    pub faults: BTreeSet<Fault>,
    /// The parent of the run's directory.
    pub parent: PathBuf,
}

/// Executes a run and returns the number of violations.
///
/// # Errors
/// If the server does not start or restart.
pub fn run(options: &Options) -> Result<usize> {
    for fault in &options.faults {
        fault.check(&options.provider)?;
    }
    let directory = RunDirectory::create(&options.parent)?;
    println!("directory {}", directory.path().display());
    let small = options.faults.contains(&Fault::Disk).then(|| SmallHome::mount(&directory));
    let small = small.transpose()?;
    let report = Arc::new(Report::default());
    let finished = run_in(options, &directory, &report);
    println!("operations and answers:");
    report.print_counts();
    if let Err(error) = &finished {
        report.violation("run", "server", format!("{error:#}"));
    }
    let violations = report.violations();
    print_summary(&violations.iter().map(|violation| violation.kind).collect::<Vec<_>>());
    drop(small);
    if violations.is_empty() {
        std::fs::remove_dir_all(directory.path())?;
    } else {
        println!("kept {} with server.log", directory.path().display());
    }
    Ok(violations.len())
}

/// Prints the number of violations of each kind.
pub(crate) fn print_summary(kinds: &[&'static str]) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for kind in kinds {
        *counts.entry(kind).or_default() += 1;
    }
    println!("violations: {}", kinds.len());
    for (kind, count) in counts {
        println!("  {count:>8}  {kind}");
    }
}

fn run_in(options: &Options, directory: &RunDirectory, report: &Arc<Report>) -> Result<()> {
    let vendor = match options.provider.as_str() {
        "e2b" => Some(Arc::new(SandboxVendor::start(&options.binary, directory, options.seed)?)),
        _ => None,
    };
    let arguments = vendor.as_ref().map(|vendor| vendor.options(directory)).unwrap_or_default();
    let server = Server::start(&options.binary, directory, &options.provider, arguments)?;
    let instances = vendor.as_ref().map_or(directory, |vendor| vendor.directory());
    let http = server.http();
    let server = Arc::new(Mutex::new(server));
    let world = Arc::new(create_world(http.clone(), report.clone(), options)?);
    let mut clients = Vec::new();
    for index in 0..options.clients {
        clients.push(ChaosClient::new(world.clone(), index)?);
    }
    let injector = Injector {
        server: server.clone(),
        directory: instances.clone(),
        vendor: vendor.clone(),
        report: report.clone(),
    };
    let traces = Traces::default();
    let (clients_ended, all_ended) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| traces.sample(instances, &all_ended));
        let worked = work(options, &injector, &mut clients, &clients_ended);
        if worked.is_ok() {
            verify(&mut clients);
            check_histories(&world);
        }
        let deleted = worked.and_then(|()| delete_everything(&http, &world, report));
        all_ended.store(true, Ordering::Relaxed);
        deleted
    })?;
    let vendor_pid = vendor.as_ref().and_then(|vendor| vendor.pid());
    let servers: Vec<i32> = server.lock().pid().into_iter().chain(vendor_pid).collect();
    for left in traces.wait_until_gone(directory, Remaining::Servers(&servers)) {
        report.violation("leftover", "machine", left);
    }
    if let Some(vendor) = &vendor {
        for left in traces.wait_until_gone(vendor.directory(), Remaining::Servers(&servers)) {
            report.violation("leftover", "vendor", left);
        }
        for left in vendor.sandboxes()? {
            report.violation("leftover", "vendor", format!("sandbox {left}"));
        }
    }
    match server.lock().stop() {
        Some(duration) => println!("SIGTERM took {duration:.1?}"),
        None => report.violation("stop", "server", "SIGTERM did not end it within 60 s"),
    }
    if vendor.is_none() {
        for left in traces.wait_until_gone(directory, Remaining::Nothing) {
            report.violation("leftover", "machine after the end of the server", left);
        }
    }
    Ok(())
}

/// Runs the clients while faults are injected.
fn work(
    options: &Options,
    injector: &Injector,
    clients: &mut [ChaosClient],
    ended: &AtomicBool,
) -> Result<()> {
    let started = Instant::now();
    let vanishing = options.faults.contains(&Fault::Vanish);
    let injected = std::thread::scope(|scope| {
        for client in clients.iter_mut() {
            scope.spawn(|| client.run(options.seed, vanishing, ended));
        }
        let injected = injector.run(options.seed, &options.faults, started + options.duration);
        ended.store(true, Ordering::Relaxed);
        injected
    });
    println!("clients ran for {:.0?}; verifying", started.elapsed());
    if vanishing && injector.report.counted(&Fault::Vanish.counter()) == 0 {
        let name = Fault::Vanish.name();
        injector.report.violation("fault", name, "was asked for and never happened");
    }
    injected
}

fn verify(clients: &mut [ChaosClient]) {
    std::thread::scope(|scope| {
        for client in clients {
            scope.spawn(|| client.verify());
        }
    });
}

fn create_world(http: Http, report: Arc<Report>, options: &Options) -> Result<ClientsWorld> {
    let request = HttpRequest::new("POST", "/api/projects").json(&json!({"prefix": "chaos"}));
    let project = http
        .send(&request, None)
        .map_err(|failure| anyhow::anyhow!("cannot create a project: {failure:?}"))?;
    let project = project.json()["project_id"].as_str().context("no project id")?.to_owned();
    let mut world = ClientsWorld {
        http,
        report,
        project,
        registers: Vec::new(),
        effects: (0..REGISTER_THREADS).map(|_| Mutex::default()).collect(),
        histories: Mutex::default(),
        programs_die: [Fault::HostKill, Fault::ShellKill, Fault::Disk]
            .iter()
            .any(|fault| options.faults.contains(fault)),
        disk_fills: options.faults.contains(&Fault::Disk),
        workspace: match options.provider.as_str() {
            "e2b" => FileAccess::InSandbox,
            _ => FileAccess::Shared,
        },
    };
    for index in 0..REGISTER_THREADS {
        world.registers.push(world.create_thread(&format!("register-{index}"))?);
    }
    Ok(world)
}

fn check_histories(world: &ClientsWorld) {
    for (key, history) in world.histories.lock().iter() {
        world.report.count(format!("history {key}: {} operations", history.len()));
        if let Err(anomaly) = register::check(history) {
            let names: Vec<String> = anomaly.values.iter().map(|v| plan::name(*v)).collect();
            let mut lines = vec![format!("{} ({})", anomaly.reason, names.join(", "))];
            let mut involved: Vec<RegisterOperation> = involved(history, &anomaly.values);
            involved.sort_by_key(|operation| operation.invoked);
            let hidden = involved.len().saturating_sub(MAX_PRINTED_OPERATIONS);
            if hidden > 0 {
                lines.push(format!("{hidden} earlier operations"));
            }
            lines.extend(involved.iter().skip(hidden).map(describe));
            world.report.violation("linearizability", key, lines.join("\n    "));
        }
    }
}

/// Returns the operations on the values of an anomaly, and those of the same time.
fn involved(history: &[RegisterOperation], values: &[u64]) -> Vec<RegisterOperation> {
    let is_of = |operation: &&RegisterOperation| match operation.action {
        RegisterAction::Read(value) | RegisterAction::Write(value, _) => values.contains(&value),
    };
    let start = history.iter().filter(is_of).map(|operation| operation.invoked).min();
    let end = history.iter().filter(is_of).map(|operation| operation.returned).max();
    let (start, end) = (start.unwrap_or(0), end.unwrap_or(u64::MAX));
    let overlaps = |o: &&RegisterOperation| o.returned >= start && o.invoked <= end;
    history.iter().filter(overlaps).copied().collect()
}

fn describe(operation: &RegisterOperation) -> String {
    let RegisterOperation { client, invoked, returned, action, how } = operation;
    let action = match action {
        RegisterAction::Read(value) => format!("reads {}", plan::name(*value)),
        RegisterAction::Write(value, outcome) => {
            format!("writes {} ({outcome:?})", plan::name(*value))
        }
    };
    format!("[{invoked:>6} {returned:>6}] client {client} {action} by {how}")
}

/// Deletes all threads and the project, and waits until the lists are empty.
fn delete_everything(http: &Http, world: &ClientsWorld, report: &Report) -> Result<()> {
    let mut deadline = Instant::now() + DELETION_TIMEOUT;
    let mut left = vec!["?".to_owned()];
    while !left.is_empty() {
        if Instant::now() > deadline {
            report.violation("rows", "threads", format!("not deleted: {left:?}"));
            break;
        }
        let Ok(answer) = http.get("/api/threads?limit=200") else { continue };
        let listed = names(&answer.json()["items"], "thread_id");
        if listed != left {
            deadline = Instant::now() + DELETION_TIMEOUT;
        }
        left = listed;
        for thread in &left {
            let target = format!("/api/threads/{thread}");
            let answer = http.send(&HttpRequest::new("DELETE", &target), None);
            match answer {
                Ok(answer) if answer.is_success() || answer.status == 404 => {}
                Ok(answer) => report.violation("deletion", target, answer.summary()),
                Err(failure) => report.violation("deletion", target, format!("{failure:?}")),
            }
        }
    }
    let project = format!("/api/projects/{}", world.project);
    match http.send(&HttpRequest::new("DELETE", &project), None) {
        Ok(answer) if answer.is_success() => {}
        Ok(answer) => report.violation("deletion", project, answer.summary()),
        Err(failure) => report.violation("deletion", project, format!("{failure:?}")),
    }
    let deadline = Instant::now() + DELETION_TIMEOUT;
    loop {
        let answer = http.get("/api/leases?limit=200");
        let Ok(answer) = answer else { bail!("the list of leases was not answered") };
        let leases = names(&answer.json()["items"], "lease_id");
        if leases.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            report.violation("rows", "leases", format!("still listed: {leases:?}"));
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn names(items: &serde_json::Value, field: &str) -> Vec<String> {
    let items = items.as_array().into_iter().flatten();
    items.filter_map(|item| item[field].as_str().map(str::to_owned)).collect()
}

/// A small file system for the home, so that filling it affects no other program.
#[derive(Debug)]
struct SmallHome(PathBuf);

impl SmallHome {
    fn mount(directory: &RunDirectory) -> Result<SmallHome> {
        let home = directory.home();
        let size = format!("size={HOME_BYTES},mode=700");
        let mut command = Command::new("mount");
        let command = command.args(["-t", "tmpfs", "-o", &size, "stead-chaos"]).arg(&home);
        if !command.status().is_ok_and(|status| status.success()) {
            bail!("the fault `disk` needs root, to mount a small file system");
        }
        Ok(SmallHome(home))
    }
}

impl Drop for SmallHome {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
