//! The label file in an instance's directory, which records the lease that the instance was created for.

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use base::durable::replace_volatile;

const FILE: &str = "label";

/// Writes the label of an instance's directory.
pub fn write_label(dir: &Path, label: &impl Serialize) -> io::Result<()> {
    // Not synced: the instance does not survive a reboot either.
    replace_volatile(&dir.join(FILE), &serde_json::to_vec(label)?)
}

/// Reads the label of a directory. Returns `None` if it is missing or unreadable.
#[must_use]
pub fn read_label<T: DeserializeOwned>(dir: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(dir.join(FILE)).ok()?).ok()
}
