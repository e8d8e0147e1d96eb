//! Measures a host and its descendants.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::cgroup::InstanceCgroup;
use super::processes;
use crate::instance::Metrics;

/// Measures a host, its descendants and the directories of its terminals.
pub(super) fn measure(host: i32, cgroup: Option<&InstanceCgroup>, dirs: Vec<PathBuf>) -> Metrics {
    let family = processes::family(host);
    let living = family.iter().filter(|process| process.alive());
    let ticks_us = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let by_process: u64 = family.iter().map(|process| process.cpu_ticks * ticks_us).sum();
    // The cgroup also counts processes that were never reaped; the sum also counts the host.
    let by_cgroup = cgroup.and_then(InstanceCgroup::cpu_us).unwrap_or(0);
    Metrics {
        cpu_us: by_process.max(by_cgroup),
        memory_bytes: living.clone().map(|process| memory(process.pid)).sum(),
        processes: living.count() as u64,
        disk_bytes: dirs.into_iter().map(directory_size).sum(),
        limits: None,
        exceeded: None,
    }
}

/// The directories in `parent` that a process has files open in.
pub(super) fn open_directories(pid: i32, parent: &Path) -> Vec<PathBuf> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let below = links.filter_map(|link| {
        let file = fs::read_link(link.path()).ok()?;
        let name = file.strip_prefix(parent).ok()?.components().next()?;
        Some(parent.join(name))
    });
    below.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The memory of a process: proportional (PSS), or resident if the kernel does not report that.
fn memory(pid: i32) -> u64 {
    let proportional = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .ok()
        .and_then(|text| kilobytes(&text, "Pss:"));
    let resident = || {
        let text = fs::read(format!("/proc/{pid}/status")).ok()?;
        kilobytes(&String::from_utf8_lossy(&text), "VmRSS:")
    };
    proportional.or_else(resident).unwrap_or(0)
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(number * 1024)
}

/// The space that a directory takes on disk. Links are not followed.
pub fn directory_size(dir: PathBuf) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    let mut open = vec![dir];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            sum += metadata.blocks() * 512;
            if metadata.is_dir() {
                open.push(entry.path());
            }
        }
    }
    sum
}
