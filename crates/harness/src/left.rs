//! Leftovers of sandboxes and containers.

use std::{collections::BTreeSet, fs, path::Path};

/// Directories that are empty when no instance is there and no lease has files.
const PLACES: [&str; 4] = ["sandboxes", "disks", "containers", "container-disks"];

/// Returns all leftovers of a home: directories, disks, loop devices and mounts. Disks of workspaces belong to
/// projects, which exist.
pub fn left(home: &Path) -> BTreeSet<String> {
    let mut left = BTreeSet::new();
    for place in PLACES {
        let entries = fs::read_dir(home.join(place)).into_iter().flatten().flatten();
        left.extend(entries.map(|entry| entry.path().display().to_string()));
    }
    let home = home.to_string_lossy();
    let is_workspace = |line: &str| line.contains(&format!("{home}/workspaces/"));
    for device in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = fs::read_to_string(device.path().join("loop/backing_file"));
        if let Some(file) = file.ok().filter(|file| file.starts_with(&*home) && !is_workspace(file))
        {
            left.insert(format!("loop device of {}", file.trim()));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let ours = mounts.lines().filter(|line| line.contains(&*home) && !is_workspace(line));
    left.extend(ours.map(|line| format!("mount {line}")));
    left
}
