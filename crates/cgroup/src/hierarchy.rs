//! The cgroup hierarchies of this machine: where they are mounted, and how a new cgroup gets its controllers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A hierarchy of version 1, or the one of version 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    /// The controllers of version 1; empty for version 2.
    pub(super) controllers: Vec<String>,
    pub(super) mount: PathBuf,
}

impl Hierarchy {
    /// Whether this is the version 1 hierarchy of a controller.
    pub(super) fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }
}

/// The path of the cgroup with a process's limits, from its `/proc/PID/cgroup`.
pub fn path(proc_cgroup: &str) -> Option<&str> {
    let lines = || proc_cgroup.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let limited = |(names, _): &(&str, &str)| names.split(',').any(|name| name == "memory");
    let found = lines().find(limited).or_else(|| lines().find(|(names, _)| names.is_empty()));
    found.map(|(_, path)| path)
}

/// The hierarchies in `/proc/self/mountinfo`.
pub(super) fn hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
    let found = mountinfo.lines().filter_map(|line| {
        let (mount, rest) = line.split_once(" - ")?;
        let mut rest = rest.split(' ');
        let (kind, options) = (rest.next()?, rest.nth(1)?);
        let at = PathBuf::from(mount.split(' ').nth(4)?);
        match kind {
            "cgroup2" => Some(Hierarchy { controllers: vec![], mount: at }),
            "cgroup" => Some(Hierarchy {
                controllers: options
                    .split(',')
                    .filter(|word| !matches!(*word, "rw" | "ro"))
                    .map(str::to_owned)
                    .collect(),
                mount: at,
            }),
            _ => None,
        }
    });
    let mut list: Vec<Hierarchy> = Vec::new();
    for hierarchy in found {
        // A hierarchy may be mounted twice.
        if !list.iter().any(|known| known.controllers == hierarchy.controllers) {
            list.push(hierarchy);
        }
    }
    list
}

/// Copies the CPUs and memory nodes of the parent to `dir` and all cgroups above it that have none. Without
/// them, version 1 accepts no process.
pub(super) fn inherit_cpus(mount: &Path, dir: &Path) -> io::Result<()> {
    let Ok(below) = dir.strip_prefix(mount) else { return Ok(()) };
    let mut at = mount.to_owned();
    for name in below {
        let parent = at.clone();
        at.push(name);
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if fs::read_to_string(at.join(file))?.trim().is_empty() {
                fs::write(at.join(file), fs::read_to_string(parent.join(file))?)?;
            }
        }
    }
    Ok(())
}

/// Parses a list of CPUs such as `0-3,8`.
pub(super) fn parse_cpus(list: &str) -> Vec<usize> {
    let parts = list.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    });
    parts.flatten().collect()
}

pub(super) fn format_cpus(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// Enables the controllers of version 2 in all cgroups above `dir`.
pub(super) fn enable_controllers(mount: &Path, dir: &Path) -> io::Result<()> {
    let Ok(below) = dir.strip_prefix(mount) else { return Ok(()) };
    let mut at = mount.to_owned();
    for name in below {
        let available = fs::read_to_string(at.join("cgroup.controllers"))?;
        let enabled = fs::read_to_string(at.join("cgroup.subtree_control"))?;
        let word = |text: &str, wanted: &str| text.split_whitespace().any(|name| name == wanted);
        for controller in ["memory", "pids", "cpu", "cpuset", "io"] {
            if word(&available, controller) && !word(&enabled, controller) {
                fs::write(at.join("cgroup.subtree_control"), format!("+{controller}"))?;
            }
        }
        at.push(name);
    }
    Ok(())
}
