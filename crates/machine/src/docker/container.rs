//! The request that creates a container.
//!
//! Pure. The engine creates the namespaces and a read-only root, sets the limits and drops all capabilities.
//! Process 1 gets those of its settings in a user namespace of its own. The launcher mounts the lease's disk over that
//! root and connects the network. The host's socket and the terminals' directories are handed to process 1 as
//! descriptors: they are not mounted.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig,
    Mount, MountBindOptions, MountType, ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};
use rustix::process::{Resource, getrlimit};

use super::engine::EngineKind;
use super::launch::{HANDOFF, HANDOFF_INSIDE};
use crate::layout::{
    self, CPU_SHARES, MASKED, MAX_OPEN_FILES, MAX_PENDING_SIGNALS, PROGRAMS, READ_ONLY,
};
use crate::spec::{SandboxCapabilities, SandboxSpec};
use crate::tools::PATH;

#[derive(Debug)]
pub(super) struct ContainerPlan<'a> {
    pub(super) image: &'a str,
    pub(super) dir: &'a Path,
    pub(super) spec: &'a SandboxSpec,
    /// The directory with the host's executable.
    pub(super) programs: &'a Path,
    /// The file name of the host's executable.
    pub(super) program: &'a str,
    /// The lease and generation, which the host repeats; empty for a warm container.
    pub(super) label: &'a str,
    /// The labels for the engine.
    pub(super) labels: HashMap<String, String>,
    /// Directories of this machine that are mounted read-only at the same path.
    pub(super) shown: &'a [PathBuf],
    /// The seccomp profile, in the form that this engine accepts.
    pub(super) seccomp: &'a str,
    pub(super) kind: EngineKind,
    /// The user and group of process 1 until it becomes the host, which is user 0.
    pub(super) user: u32,
    /// The capabilities of the host and its programs in the container's own user namespace. The engine gives process 1 none.
    pub(super) capabilities: SandboxCapabilities,
}

/// Processes of one user; the limit of the container is a separate one.
const MAX_USER_PROCESSES: u64 = 16_384;

/// Files of the kernel that describe the machine, and that containers do not need.
const MASKED_SYS: [&str; 10] = [
    "/sys/block",
    "/sys/bus",
    "/sys/class",
    "/sys/dev",
    "/sys/devices",
    "/sys/firmware",
    "/sys/fs",
    "/sys/hypervisor",
    "/sys/kernel",
    "/sys/module",
];

pub(super) fn body(plan: &ContainerPlan<'_>) -> ContainerCreateBody {
    let mut command = vec![
        format!("{PROGRAMS}/{}", plan.program),
        "container".to_owned(),
        "enter".to_owned(),
        format!("{HANDOFF_INSIDE}/{HANDOFF}"),
    ];
    command.extend(layout::host_arguments(plan.label, plan.capabilities));
    ContainerCreateBody {
        hostname: Some("stead".into()),
        user: Some(format!("{0}:{0}", plan.user)),
        image: Some(plan.image.to_owned()),
        entrypoint: Some(command),
        cmd: Some(vec![]),
        env: Some(vec![format!("PATH={}", PATH)]),
        working_dir: Some("/".into()),
        labels: Some(plan.labels.clone()),
        // The health check of an image would run next to the host.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".into()]), ..Default::default() }),
        tty: Some(false),
        open_stdin: Some(false),
        host_config: Some(host_config(plan)),
        ..Default::default()
    }
}

fn host_config(plan: &ContainerPlan<'_>) -> HostConfig {
    let memory = i64::try_from(plan.spec.memory).unwrap_or(i64::MAX);
    let masked: Vec<String> = MASKED.iter().chain(&MASKED_SYS).map(|p| (*p).to_owned()).collect();
    let mut security = vec![format!("seccomp={}", plan.seccomp)];
    match plan.capabilities {
        SandboxCapabilities::None => security.push("no-new-privileges".into()),
        // `su` and `sudo` need set-id programs.
        SandboxCapabilities::Root => {}
    }
    match plan.kind {
        EngineKind::Docker => {}
        // Podman ignores `masked_paths`.
        EngineKind::Podman => security.push(format!("mask={}", masked.join(":"))),
    }
    HostConfig {
        memory: Some(memory),
        // Including swap, so that the limit also bounds swapping.
        memory_swap: Some(memory),
        nano_cpus: Some(plan.spec.milli_cpus as i64 * 1_000_000),
        cpu_shares: Some(CPU_SHARES as i64),
        pids_limit: Some(plan.spec.processes as i64),
        ulimits: Some(ulimits(plan.spec)),
        cap_drop: Some(vec!["ALL".into()]),
        security_opt: Some(security),
        // Only its own loopback: the launcher connects it as its egress policy allows.
        network_mode: Some("none".into()),
        ipc_mode: Some("private".into()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        privileged: Some(false),
        init: Some(false),
        auto_remove: Some(false),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            ..Default::default()
        }),
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".into()),
            config: Some([("max-size".to_owned(), "64k".to_owned())].into()),
        }),
        // Writes go to the lease's disk, which is mounted over it.
        readonly_rootfs: Some(true),
        mounts: Some(mounts(plan)),
        // RAM disks are small, because killing a process does not free their memory.
        tmpfs: Some([("/run".to_owned(), "rw,nosuid,nodev,mode=755,size=32m".to_owned())].into()),
        shm_size: Some(8 << 20),
        sysctls: Some(
            layout::SYSCTLS.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ),
        masked_paths: Some(masked),
        readonly_paths: Some(READ_ONLY.map(str::to_owned).to_vec()),
        ..Default::default()
    }
}

/// The bind mounts: read-only, and without what is mounted below their sources.
fn mounts(plan: &ContainerPlan<'_>) -> Vec<Mount> {
    let mut shown: Vec<(PathBuf, PathBuf)> = vec![
        (plan.programs.to_owned(), PROGRAMS.into()),
        (plan.dir.join(HANDOFF), HANDOFF_INSIDE.into()),
    ];
    shown.extend(plan.shown.iter().map(|path| (path.clone(), path.clone())));
    let text = |path: PathBuf| Some(path.to_string_lossy().into_owned());
    let mount = |(source, target)| Mount {
        typ: Some(MountType::BIND),
        source: text(source),
        target: text(target),
        read_only: Some(true),
        bind_options: Some(MountBindOptions { non_recursive: Some(true), ..Default::default() }),
        ..Default::default()
    };
    shown.into_iter().map(mount).collect()
}

/// The limits of single processes. Limits that an engine raises by default are set to our own, because an
/// engine without the right to raise them could not start a container.
fn ulimits(spec: &SandboxSpec) -> Vec<ResourcesUlimits> {
    let own = |resource| {
        let limit = getrlimit(resource).maximum;
        limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(-1)
    };
    let at_most = |resource, wanted: u64| match own(resource) {
        -1 => wanted as i64,
        limit => limit.min(wanted as i64),
    };
    [
        // With a limit of 0, the kernel would still pipe core dumps to a program.
        ("core", at_most(Resource::Core, 1)),
        ("memlock", 64 << 10),
        ("msgqueue", 819_200),
        ("nofile", at_most(Resource::Nofile, MAX_OPEN_FILES)),
        ("nproc", at_most(Resource::Nproc, MAX_USER_PROCESSES)),
        ("sigpending", at_most(Resource::Sigpending, MAX_PENDING_SIGNALS)),
        // A workspace is not on the lease's disk: at least no single file grows beyond its limit.
        ("fsize", at_most(Resource::Fsize, spec.disk)),
    ]
    .map(|(name, limit)| ResourcesUlimits {
        name: Some(name.into()),
        soft: Some(limit),
        hard: Some(limit),
    })
    .to_vec()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn request() -> Value {
        request_with(SandboxCapabilities::None)
    }

    fn request_with(capabilities: SandboxCapabilities) -> Value {
        let spec = SandboxSpec::default_for(4 << 30, 2);
        let body = body(&ContainerPlan {
            image: "stead/machine:1",
            dir: Path::new("/home/containers/inst_1"),
            spec: &spec,
            programs: Path::new("/home/programs"),
            program: "stead-1",
            label: "lease_1:1",
            labels: HashMap::new(),
            shown: &["/usr".into()],
            seccomp: "{}",
            kind: EngineKind::Docker,
            user: 0,
            capabilities,
        });
        serde_json::to_value(body).unwrap()
    }

    #[test]
    fn no_process_inside_has_or_gains_a_capability() {
        let host = &request()["HostConfig"];
        assert_eq!(host["CapDrop"], serde_json::json!(["ALL"]));
        assert!(host["CapAdd"].is_null());
        assert_eq!(host["Privileged"], false);
        assert_eq!(host["SecurityOpt"][1], "no-new-privileges");
        assert_eq!(host["NetworkMode"], "none");
        assert_eq!(host["Memory"], host["MemorySwap"]);
        assert_eq!(host["NanoCpus"], 1_500_000_000);
    }

    #[test]
    fn the_engine_gives_no_capability_to_a_container_whose_root_has_some() {
        let request = request_with(SandboxCapabilities::Root);
        let host = &request["HostConfig"];
        assert_eq!(host["CapDrop"], serde_json::json!(["ALL"]));
        assert!(host["CapAdd"].is_null());
        assert_eq!(host["Privileged"], false);
        assert_eq!(host["SecurityOpt"], serde_json::json!(["seccomp={}"]));
    }

    #[test]
    fn directories_of_the_machine_are_mounted_read_only() {
        let request = request();
        let mounts = request["HostConfig"]["Mounts"].as_array().unwrap();
        assert_eq!(mounts.len(), 3);
        assert_eq!(request["HostConfig"]["ReadonlyRootfs"], true);
        for mount in mounts {
            assert_eq!(mount["ReadOnly"], true, "{mount}");
            assert_eq!(mount["BindOptions"]["NonRecursive"], true, "{mount}");
            let source = mount["Source"].as_str().unwrap();
            assert!(!source.contains("sock") && !source.ends_with("/t"), "{mount}");
        }
        assert!(request["HostConfig"]["Binds"].is_null());
    }

    #[test]
    fn process_1_is_the_host_for_every_image() {
        let request = request();
        let command = request["Entrypoint"].as_array().unwrap();
        assert_eq!(command[0], "/.stead/stead-1");
        assert_eq!(command[1], "container");
        assert_eq!(command[4], "host");
        assert_eq!(request["Cmd"], serde_json::json!([]));
        assert_eq!(request["User"], "0:0");
    }
}
