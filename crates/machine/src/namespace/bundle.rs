//! The OCI bundle of a sandbox: everything that an OCI runtime is told about it.
//!
//! Pure. The root file system and what is mounted into it is made by the launcher beforehand; the
//! runtime adds the mounts that belong to the sandbox's own namespaces, drops every right, and starts
//! the host as process 1.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Capabilities, LinuxBlockIoBuilder, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxCpuBuilder,
    LinuxDeviceCgroupBuilder, LinuxDeviceType, LinuxIdMappingBuilder, LinuxMemoryBuilder,
    LinuxNamespaceBuilder, LinuxNamespaceType, LinuxPidsBuilder, LinuxResources,
    LinuxResourcesBuilder, LinuxThrottleDeviceBuilder, Mount, MountBuilder, ProcessBuilder,
    RootBuilder, Spec, SpecBuilder, UserBuilder,
};

pub(crate) use super::disk::PATH;
use super::pace::Pace;
use super::seccomp;
use super::spec::SandboxSpec;

/// How many users a sandbox has.
pub(super) const USERS: u32 = 65_536;

/// Where the host's executable is inside.
pub(crate) const PROGRAMS: &str = "/.stead";

/// The host's own directory inside; the short-lived files of its terminals are in it, too.
const RUN: &str = "/run/stead";

/// The number under which process 1 holds its listening socket.
pub(super) const SOCKET_FD: i32 = 3;

/// The number under which process 1 holds the directory of its terminals, which has no path inside.
pub(crate) const TERMINALS_FD: i32 = 4;

/// The number under which process 1 finds the filters of its system calls.
pub(super) const FILTER_FD: i32 = 5;

/// A period of processor time, in microseconds.
const PERIOD: u64 = 100_000;

/// The weight against everything outside: a sandbox that is busy yields to the server.
pub(crate) const SHARES: u64 = 256;

/// The group of terminals.
#[derive(Debug, Clone, Copy)]
pub(super) enum Group {
    /// The usual one.
    Fifth,
    /// The only one there is.
    Own,
}

/// What a bundle is made from.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    /// Where the root file system is mounted.
    pub(super) root: &'a Path,
    /// The limits.
    pub(super) spec: &'a SandboxSpec,
    /// The machine's user that is the sandbox's user 0.
    pub(super) first_user: u32,
    /// The user namespace, by a path that the runtime can open.
    pub(super) users: &'a Path,
    /// The group that its terminals are of.
    pub(super) terminals: Group,
    /// The path of its cgroup in every hierarchy.
    pub(super) cgroup: &'a str,
    /// The host's executable, by its name in [`PROGRAMS`].
    pub(super) program: &'a str,
    /// What the host answers when it is asked what it was made for; empty for one that waits, and ends
    /// with the server it waits for.
    pub(super) label: &'a str,
    /// How fast it writes to its disk, if that is a device.
    pub(super) pace: Option<&'a Pace>,
}

/// The configuration for the runtime.
///
/// # Errors
/// When a builder refuses, which would be our mistake.
pub(super) fn config(plan: &Plan<'_>) -> Result<Spec, OciSpecError> {
    SpecBuilder::default()
        .version("1.0.2")
        .hostname("stead")
        .root(RootBuilder::default().path(plan.root).readonly(false).build()?)
        .process(process(plan)?)
        .mounts(mounts(plan.terminals)?)
        .linux(linux(plan)?)
        .build()
}

fn process(plan: &Plan<'_>) -> Result<oci_spec::runtime::Process, OciSpecError> {
    let none = Capabilities::new();
    let capabilities = LinuxCapabilitiesBuilder::default()
        .bounding(none.clone())
        .effective(none.clone())
        .inheritable(none.clone())
        .permitted(none.clone())
        .ambient(none)
        .build()?;
    let mut args = vec![format!("{PROGRAMS}/{}", plan.program)];
    args.extend(host_arguments(plan.label));
    ProcessBuilder::default()
        .terminal(false)
        .user(UserBuilder::default().uid(0u32).gid(0u32).build()?)
        .args(args)
        .env([format!("PATH={PATH}")])
        .cwd("/")
        .capabilities(capabilities)
        .no_new_privileges(true)
        // The limits of processes are the launcher's own, which are handed down.
        .rlimits([])
        .build()
}

/// The group that terminals usually are of.
pub(crate) const TERMINALS_GROUP: u32 = 5;

/// Terminals are counted for the whole machine: one sandbox gets no more than its share.
pub(crate) fn terminal_options(group: u32) -> String {
    format!("newinstance,ptmxmode=0666,mode=0620,gid={group},max=256")
}

/// What our executable is told to be the host of a sandbox; without a label, of one that waits.
pub(crate) fn host_arguments(label: &str) -> Vec<String> {
    let (socket, filter) = (SOCKET_FD.to_string(), FILTER_FD.to_string());
    let descriptors = ["--listen-fd", &socket, "--filter-fd", &filter];
    let waits: &[&str] = if label.is_empty() { &["--leave-unused"] } else { &[] };
    let label = ["--no-cgroup", "--label", label];
    let arguments = [&["host", "--dir", RUN][..], &descriptors, &label, waits];
    arguments.concat().into_iter().map(str::to_owned).collect()
}

/// The mounts of the sandbox's own namespaces. RAM disks are small, because what is in them is
/// memory that killing a process does not give back.
fn mounts(terminals: Group) -> Result<Vec<Mount>, OciSpecError> {
    let group = match terminals {
        Group::Fifth => TERMINALS_GROUP,
        Group::Own => 0,
    };
    let terminals = format!("nosuid,noexec,{}", terminal_options(group));
    [
        ("/proc", "proc", "proc", "nosuid,noexec,nodev"),
        ("/dev", "tmpfs", "tmpfs", "nosuid,noexec,strictatime,mode=755,size=64k"),
        ("/dev/pts", "devpts", "devpts", &terminals),
        ("/dev/shm", "tmpfs", "shm", "nosuid,noexec,nodev,mode=1777,size=8m"),
        ("/dev/mqueue", "mqueue", "mqueue", "nosuid,noexec,nodev"),
        ("/sys", "tmpfs", "tmpfs", "nosuid,noexec,nodev,ro,mode=555,size=4k"),
        ("/run", "tmpfs", "tmpfs", "nosuid,nodev,mode=755,size=32m"),
    ]
    .into_iter()
    .map(|(at, kind, source, options)| {
        MountBuilder::default()
            .destination(at)
            .typ(kind)
            .source(source)
            .options(options.split(',').map(str::to_owned).collect::<Vec<_>>())
            .build()
    })
    .collect()
}

/// What the cgroups of a sandbox bound.
pub(super) fn resources(spec: &SandboxSpec) -> Result<LinuxResources, OciSpecError> {
    bounds(spec)?.build()
}

fn bounds(spec: &SandboxSpec) -> Result<LinuxResourcesBuilder, OciSpecError> {
    let memory = i64::try_from(spec.memory).unwrap_or(i64::MAX);
    let nothing = LinuxDeviceCgroupBuilder::default().allow(false).typ(LinuxDeviceType::A);
    let resources = LinuxResourcesBuilder::default()
        .devices([nothing.access("rwm").build()?])
        // Swap included: a limit that swaps is none.
        .memory(LinuxMemoryBuilder::default().limit(memory).swap(memory).build()?)
        .cpu(
            LinuxCpuBuilder::default()
                .period(PERIOD)
                .quota((spec.milli_cpus * PERIOD / 1000) as i64)
                .shares(SHARES)
                .build()?,
        )
        .pids(LinuxPidsBuilder::default().limit(spec.processes as i64).build()?);
    Ok(resources)
}

fn linux(plan: &Plan<'_>) -> Result<oci_spec::runtime::Linux, OciSpecError> {
    let users = LinuxIdMappingBuilder::default()
        .container_id(0u32)
        .host_id(plan.first_user)
        .size(USERS)
        .build()?;
    // The network namespace is the launcher's, which has set it up and is in it.
    let namespaces = [
        LinuxNamespaceType::Pid,
        LinuxNamespaceType::Ipc,
        LinuxNamespaceType::Uts,
        LinuxNamespaceType::Mount,
        LinuxNamespaceType::User,
        LinuxNamespaceType::Cgroup,
    ]
    .map(|kind| {
        let namespace = LinuxNamespaceBuilder::default().typ(kind);
        match kind {
            // Made by the launcher as the sandbox's own user: what the kernel counts by user and
            // also where a namespace was made from would otherwise be counted as root's, for all
            // sandboxes together.
            LinuxNamespaceType::User => namespace.path(plan.users).build(),
            _ => namespace.build(),
        }
    });
    let mut resources = bounds(plan.spec)?;
    if let Some(pace) = plan.pace.filter(|pace| pace.rate != 0) {
        let device = LinuxThrottleDeviceBuilder::default()
            .major(pace.major)
            .minor(pace.minor)
            .rate(pace.rate);
        let writing = vec![device.build()?];
        let disks = LinuxBlockIoBuilder::default().throttle_write_bps_device(writing);
        resources = resources.block_io(disks.build()?);
    }
    let resources = resources.build()?;
    LinuxBuilder::default()
        .namespaces(namespaces.into_iter().collect::<Result<Vec<_>, _>>()?)
        .uid_mappings([users])
        .gid_mappings([users])
        .cgroups_path(PathBuf::from(plan.cgroup))
        .resources(resources)
        .seccomp(seccomp::oci()?)
        .sysctl(HashMap::from(SYSCTLS.map(|(name, value)| (name.to_owned(), value.to_owned()))))
        .masked_paths(MASKED.map(str::to_owned))
        .readonly_paths(READ_ONLY.map(str::to_owned))
        .build()
}

/// Shared memory with a name outlives its processes; bounded, and gone with the last of them.
pub(crate) const SYSCTLS: [(&str, &str); 2] =
    [("kernel.shm_rmid_forced", "1"), ("kernel.shmall", "16384")];

/// What of the kernel's files tells or changes something beyond the sandbox.
pub(crate) const MASKED: [&str; 22] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/config.gz",
    "/proc/interrupts",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/mtrr",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/vmallocinfo",
];

pub(crate) const READ_ONLY: [&str; 5] =
    ["/proc/bus", "/proc/driver", "/proc/fs", "/proc/irq", "/proc/sys"];

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn bundle() -> Value {
        let spec = SandboxSpec::default_for(4 << 30, 2);
        let config = config(&Plan {
            root: Path::new("/mnt/root"),
            spec: &spec,
            first_user: 0x4000_0000,
            users: Path::new("/proc/1/fd/64"),
            terminals: Group::Fifth,
            cgroup: "/stead/inst_1",
            program: "stead-1",
            label: "lease_1:1",
            pace: Some(&Pace { major: 7, minor: 3, rate: 1 << 20, name: "inst_1".into() }),
        });
        serde_json::to_value(config.unwrap()).unwrap()
    }

    #[test]
    fn nobody_inside_has_a_capability_or_gains_one() {
        let process = &bundle()["process"];
        for set in ["bounding", "effective", "inheritable", "permitted", "ambient"] {
            let held = &process["capabilities"][set];
            assert!(held.as_array().is_none_or(Vec::is_empty), "{set}: {held}");
        }
        assert_eq!(process["noNewPrivileges"], true);
    }

    #[test]
    fn user_0_is_a_nobody_outside_and_every_namespace_is_its_own() {
        let linux = &bundle()["linux"];
        assert_eq!(linux["uidMappings"][0]["hostID"], 0x4000_0000);
        assert_eq!(linux["uidMappings"][0]["size"], 65_536);
        let kinds: Vec<&str> = linux["namespaces"]
            .as_array()
            .unwrap()
            .iter()
            .map(|namespace| namespace["type"].as_str().unwrap())
            .collect();
        let users = linux["namespaces"].as_array().unwrap().iter().find(|n| n["type"] == "user");
        assert_eq!(users.unwrap()["path"], "/proc/1/fd/64");
        assert_eq!(kinds, ["pid", "ipc", "uts", "mount", "user", "cgroup"]);
        assert_eq!(linux["cgroupsPath"], "/stead/inst_1");
        assert_eq!(linux["resources"]["cpu"]["quota"], 150_000);
        let disks = &linux["resources"]["blockIO"]["throttleWriteBpsDevice"];
        assert_eq!(*disks, serde_json::json!([{"major": 7, "minor": 3, "rate": 1 << 20}]));
        assert_eq!(linux["resources"]["memory"]["swap"], linux["resources"]["memory"]["limit"]);
    }

    #[test]
    fn nothing_of_the_machine_is_mounted_by_the_runtime() {
        for mount in bundle()["mounts"].as_array().unwrap() {
            assert!(!mount["source"].as_str().unwrap().contains('/'), "{mount}");
        }
    }
}
