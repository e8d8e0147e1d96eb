//! The OCI bundle of a sandbox: its configuration for an OCI runtime.
//!
//! Pure. The launcher has mounted the root file system beforehand. The runtime adds the mounts of the
//! sandbox's own namespaces, drops capabilities, and starts the host as process 1.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Capabilities, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxCpuBuilder,
    LinuxDeviceCgroupBuilder, LinuxDeviceType, LinuxIdMappingBuilder, LinuxMemoryBuilder,
    LinuxNamespaceBuilder, LinuxNamespaceType, LinuxPidsBuilder, LinuxResources,
    LinuxResourcesBuilder, Mount, MountBuilder, ProcessBuilder, RootBuilder, Spec, SpecBuilder,
    UserBuilder,
};

use crate::capabilities;
use crate::layout::{
    CPU_SHARES, MASKED, PROGRAMS, READ_ONLY, SYSCTLS, TERMINALS_GROUP, host_arguments,
    terminal_options,
};
use crate::seccomp::denied;
use crate::slot;
use crate::spec::{SandboxCapabilities, SandboxSpec};
use crate::tools::PATH;

/// The period of the CPU quota, in microseconds.
const CPU_PERIOD_US: u64 = 100_000;

/// The group that owns terminals.
#[derive(Debug, Clone, Copy)]
pub(super) enum TerminalGroup {
    /// The group `tty` of the sandbox.
    Tty,
    /// The only group of an unprivileged sandbox.
    Own,
}

#[derive(Debug)]
pub(super) struct BundlePlan<'a> {
    /// The mount point of the root file system.
    pub(super) root: &'a Path,
    pub(super) spec: &'a SandboxSpec,
    /// The machine's user id that is the sandbox's user 0.
    pub(super) first_user: u32,
    /// The user namespace, by a path that the runtime can open.
    pub(super) users: &'a Path,
    pub(super) terminals: TerminalGroup,
    /// The path of its cgroup in every hierarchy.
    pub(super) cgroup: &'a str,
    /// The file name of the host's executable in [`PROGRAMS`].
    pub(super) program: &'a str,
    /// The lease and generation, which the host repeats; empty for a warm sandbox.
    pub(super) label: &'a str,
}

/// The configuration for the runtime.
///
/// # Errors
/// If a builder refuses, which would be our bug.
pub(super) fn config(plan: &BundlePlan<'_>) -> Result<Spec, OciSpecError> {
    SpecBuilder::default()
        .version("1.0.2")
        .hostname("stead")
        .root(RootBuilder::default().path(plan.root).readonly(false).build()?)
        .process(process(plan)?)
        .mounts(mounts(plan.terminals)?)
        .linux(linux(plan)?)
        .build()
}

fn process(plan: &BundlePlan<'_>) -> Result<oci_spec::runtime::Process, OciSpecError> {
    let held = capabilities::in_bundle(plan.spec.capabilities);
    let capabilities = LinuxCapabilitiesBuilder::default()
        .bounding(held.clone())
        .effective(held.clone())
        .inheritable(Capabilities::new())
        .permitted(held)
        .ambient(Capabilities::new())
        .build()?;
    let mut args = vec![format!("{PROGRAMS}/{}", plan.program)];
    args.extend(host_arguments(plan.label, plan.spec.capabilities));
    ProcessBuilder::default()
        .terminal(false)
        .user(UserBuilder::default().uid(0u32).gid(0u32).build()?)
        .args(args)
        .env([format!("PATH={PATH}")])
        .cwd("/")
        .capabilities(capabilities)
        // `su` and `sudo` gain privileges by their set-user-id bit.
        .no_new_privileges(plan.spec.capabilities == SandboxCapabilities::None)
        // Process limits are inherited from the launcher.
        .rlimits([])
        .build()
}

/// The mounts of the sandbox's own namespaces. RAM disks are small, because killing a process does not
/// free their memory.
fn mounts(terminals: TerminalGroup) -> Result<Vec<Mount>, OciSpecError> {
    let group = match terminals {
        TerminalGroup::Tty => TERMINALS_GROUP,
        TerminalGroup::Own => 0,
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

/// The limits of a sandbox's cgroups.
pub(super) fn resources(spec: &SandboxSpec) -> Result<LinuxResources, OciSpecError> {
    limits(spec)?.build()
}

fn limits(spec: &SandboxSpec) -> Result<LinuxResourcesBuilder, OciSpecError> {
    let memory = i64::try_from(spec.memory).unwrap_or(i64::MAX);
    let nothing = LinuxDeviceCgroupBuilder::default().allow(false).typ(LinuxDeviceType::A);
    let resources = LinuxResourcesBuilder::default()
        .devices([nothing.access("rwm").build()?])
        // Including swap, so that the limit also bounds swapping.
        .memory(LinuxMemoryBuilder::default().limit(memory).swap(memory).build()?)
        .cpu(
            LinuxCpuBuilder::default()
                .period(CPU_PERIOD_US)
                .quota((spec.milli_cpus * CPU_PERIOD_US / 1000) as i64)
                .shares(CPU_SHARES)
                .build()?,
        )
        .pids(LinuxPidsBuilder::default().limit(spec.processes as i64).build()?);
    Ok(resources)
}

fn linux(plan: &BundlePlan<'_>) -> Result<oci_spec::runtime::Linux, OciSpecError> {
    let users = LinuxIdMappingBuilder::default()
        .container_id(0u32)
        .host_id(plan.first_user)
        .size(slot::USERS)
        .build()?;
    // The launcher has set up the network namespace and is in it.
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
            // The launcher created it as the sandbox's own user. Otherwise the kernel would also charge
            // per-user limits to root, for all sandboxes together.
            LinuxNamespaceType::User => namespace.path(plan.users).build(),
            _ => namespace.build(),
        }
    });
    let resources = limits(plan.spec)?.build()?;
    LinuxBuilder::default()
        .namespaces(namespaces.into_iter().collect::<Result<Vec<_>, _>>()?)
        .uid_mappings([users])
        .gid_mappings([users])
        .cgroups_path(PathBuf::from(plan.cgroup))
        .resources(resources)
        .seccomp(denied::oci(plan.spec.capabilities)?)
        .sysctl(HashMap::from(SYSCTLS.map(|(name, value)| (name.to_owned(), value.to_owned()))))
        .masked_paths(MASKED.map(str::to_owned))
        .readonly_paths(READ_ONLY.map(str::to_owned))
        .build()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn bundle() -> Value {
        bundle_with(SandboxCapabilities::Root)
    }

    fn bundle_with(capabilities: SandboxCapabilities) -> Value {
        let spec = SandboxSpec { capabilities, ..SandboxSpec::default_for(4 << 30, 2) };
        let config = config(&BundlePlan {
            root: Path::new("/mnt/root"),
            spec: &spec,
            first_user: 0x4000_0000,
            users: Path::new("/proc/1/fd/64"),
            terminals: TerminalGroup::Tty,
            cgroup: "/stead/inst_1",
            program: "stead-1",
            label: "lease_1:1",
        });
        serde_json::to_value(config.unwrap()).unwrap()
    }

    #[test]
    fn root_has_capabilities_over_files_and_users_only() {
        let process = &bundle()["process"];
        let mut held: Vec<String> =
            serde_json::from_value(process["capabilities"]["bounding"].clone()).unwrap();
        held.sort_unstable();
        assert_eq!(
            held,
            [
                "CAP_CHOWN",
                "CAP_DAC_OVERRIDE",
                "CAP_FOWNER",
                "CAP_FSETID",
                "CAP_KILL",
                "CAP_NET_BIND_SERVICE",
                "CAP_SETGID",
                "CAP_SETPCAP",
                "CAP_SETUID",
                "CAP_SYS_CHROOT"
            ]
        );
        for set in ["inheritable", "ambient"] {
            let held = &process["capabilities"][set];
            assert!(held.as_array().is_none_or(Vec::is_empty), "{set}: {held}");
        }
    }

    #[test]
    fn without_capabilities_no_process_inside_gains_one() {
        let process = &bundle_with(SandboxCapabilities::None)["process"];
        for set in ["bounding", "effective", "inheritable", "permitted", "ambient"] {
            let held = &process["capabilities"][set];
            assert!(held.as_array().is_none_or(Vec::is_empty), "{set}: {held}");
        }
        assert_eq!(process["noNewPrivileges"], true);
    }

    #[test]
    fn user_0_is_unprivileged_outside_and_no_namespace_is_shared() {
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
        assert_eq!(linux["resources"]["memory"]["swap"], linux["resources"]["memory"]["limit"]);
    }

    #[test]
    fn the_runtime_mounts_nothing_of_the_machine() {
        for mount in bundle()["mounts"].as_array().unwrap() {
            assert!(!mount["source"].as_str().unwrap().contains('/'), "{mount}");
        }
    }
}
