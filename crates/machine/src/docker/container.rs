//! A container, as its engine is told about it.
//!
//! Pure. The engine makes the namespaces and a root that nobody can write to, sets the limits and drops
//! every right; the launcher lays the lease's disk over that root, the network has nothing in it until the
//! launcher connects it, and the host's socket and the terminals'
//! directories are handed to process 1 by descriptor: no mount shows them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig,
    Mount, MountBindOptions, MountType, ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};
use rustix::process::{Resource, getrlimit};

use super::engine::Kind;
use super::launch::{DOOR, DOOR_INSIDE};
use crate::namespace::SandboxSpec;
use crate::namespace::bundle::{self, MASKED, PROGRAMS, READ_ONLY, SHARES};
use crate::namespace::launch::{FILES, SIGNALS};

/// What a container is made from.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    /// The image, as the engine knows it.
    pub(super) image: &'a str,
    /// The instance's directory.
    pub(super) dir: &'a Path,
    /// The limits.
    pub(super) spec: &'a SandboxSpec,
    /// The directory with the host's executable, and its name in it.
    pub(super) programs: &'a Path,
    /// See `programs`.
    pub(super) program: &'a str,
    /// What the host answers when it is asked what it was made for; empty for one that waits.
    pub(super) label: &'a str,
    /// What the engine keeps of that.
    pub(super) labels: HashMap<String, String>,
    /// Directories of this machine that are shown read-only under their own names.
    pub(super) shown: &'a [PathBuf],
    /// The filter of system calls, as this engine takes it.
    pub(super) seccomp: &'a str,
    /// Which engine it is.
    pub(super) kind: Kind,
}

/// Processes of one user; the limit of a container is another one.
const PROCESSES: u64 = 16_384;

/// What of the kernel's files tells something of the machine that a container has no use for.
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

/// The whole request.
pub(super) fn body(plan: &Plan<'_>) -> ContainerCreateBody {
    let mut command = vec![
        format!("{PROGRAMS}/{}", plan.program),
        "container".to_owned(),
        "enter".to_owned(),
        format!("{DOOR_INSIDE}/{DOOR}"),
    ];
    command.extend(bundle::host_arguments(plan.label));
    ContainerCreateBody {
        hostname: Some("stead".into()),
        user: Some("0:0".into()),
        image: Some(plan.image.to_owned()),
        entrypoint: Some(command),
        cmd: Some(vec![]),
        env: Some(vec![format!("PATH={}", bundle::PATH)]),
        working_dir: Some("/".into()),
        labels: Some(plan.labels.clone()),
        // What an image has of these would run beside the host.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".into()]), ..Default::default() }),
        tty: Some(false),
        open_stdin: Some(false),
        host_config: Some(host_config(plan)),
        ..Default::default()
    }
}

fn host_config(plan: &Plan<'_>) -> HostConfig {
    let memory = i64::try_from(plan.spec.memory).unwrap_or(i64::MAX);
    let masked: Vec<String> = MASKED.iter().chain(&MASKED_SYS).map(|p| (*p).to_owned()).collect();
    let mut security = vec!["no-new-privileges".into(), format!("seccomp={}", plan.seccomp)];
    match plan.kind {
        Kind::Docker => {}
        // It takes no notice of the list that is made for this.
        Kind::Podman => security.push(format!("mask={}", masked.join(":"))),
    }
    HostConfig {
        memory: Some(memory),
        // Swap included: a limit that swaps is none.
        memory_swap: Some(memory),
        nano_cpus: Some(plan.spec.milli_cpus as i64 * 1_000_000),
        cpu_shares: Some(SHARES as i64),
        pids_limit: Some(plan.spec.processes as i64),
        ulimits: Some(ulimits(plan.spec)),
        cap_drop: Some(vec!["ALL".into()]),
        security_opt: Some(security),
        // Nothing but its own loopback; the launcher connects it as far as its egress says.
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
        // What is written goes to the lease's disk, which lies over this.
        readonly_rootfs: Some(true),
        mounts: Some(mounts(plan)),
        // RAM disks are small, because what is in them is memory that killing a process does not
        // give back.
        tmpfs: Some([("/run".to_owned(), "rw,nosuid,nodev,mode=755,size=32m".to_owned())].into()),
        shm_size: Some(8 << 20),
        sysctls: Some(
            bundle::SYSCTLS.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ),
        masked_paths: Some(masked),
        readonly_paths: Some(READ_ONLY.map(str::to_owned).to_vec()),
        ..Default::default()
    }
}

/// Everything is read-only, and nothing that is mounted below is shown with it.
fn mounts(plan: &Plan<'_>) -> Vec<Mount> {
    let mut shown: Vec<(PathBuf, PathBuf)> = vec![
        (plan.programs.to_owned(), PROGRAMS.into()),
        (plan.dir.join(DOOR), DOOR_INSIDE.into()),
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

/// The limits of single processes. Those that an engine would raise by default are given as they are
/// here, because an engine without that right could not start anything.
fn ulimits(spec: &SandboxSpec) -> Vec<ResourcesUlimits> {
    let own = |resource| {
        let limit = getrlimit(resource).maximum;
        limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(-1)
    };
    let most = |resource, wanted: u64| match own(resource) {
        -1 => wanted as i64,
        limit => limit.min(wanted as i64),
    };
    [
        // A limit of 0 would still let a machine that pipes its cores to a program run that.
        ("core", most(Resource::Core, 1)),
        ("memlock", 64 << 10),
        ("msgqueue", 819_200),
        ("nofile", most(Resource::Nofile, FILES)),
        ("nproc", most(Resource::Nproc, PROCESSES)),
        ("sigpending", most(Resource::Sigpending, SIGNALS)),
        // A workspace is not on the lease's own disk: at least no file in it grows beyond that.
        ("fsize", most(Resource::Fsize, spec.disk)),
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
        let spec = SandboxSpec::default_for(4 << 30, 2);
        let body = body(&Plan {
            image: "stead/machine:1",
            dir: Path::new("/home/containers/inst_1"),
            spec: &spec,
            programs: Path::new("/home/programs"),
            program: "stead-1",
            label: "lease_1:1",
            labels: HashMap::new(),
            shown: &["/usr".into()],
            seccomp: "{}",
            kind: Kind::Docker,
        });
        serde_json::to_value(body).unwrap()
    }

    #[test]
    fn nobody_inside_has_a_capability_or_gains_one() {
        let host = &request()["HostConfig"];
        assert_eq!(host["CapDrop"], serde_json::json!(["ALL"]));
        assert!(host["CapAdd"].is_null());
        assert_eq!(host["Privileged"], false);
        assert_eq!(host["SecurityOpt"][0], "no-new-privileges");
        assert_eq!(host["NetworkMode"], "none");
        assert_eq!(host["Memory"], host["MemorySwap"]);
        assert_eq!(host["NanoCpus"], 1_500_000_000);
    }

    #[test]
    fn what_is_shown_of_the_machine_cannot_be_written_to() {
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
    fn process_1_is_ours_whatever_the_image_says() {
        let request = request();
        let command = request["Entrypoint"].as_array().unwrap();
        assert_eq!(command[0], "/.stead/stead-1");
        assert_eq!(command[1], "container");
        assert_eq!(command[4], "host");
        assert_eq!(request["Cmd"], serde_json::json!([]));
        assert_eq!(request["User"], "0:0");
    }
}
