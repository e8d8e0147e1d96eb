//! Reads the output of `strace`.

use std::{collections::BTreeMap, fs, path::Path};

/// Returns how often the busiest thread made each call; fault injection counts by thread and call.
pub fn busiest(trace: &Path) -> BTreeMap<String, usize> {
    let mut by_thread: BTreeMap<(String, String), usize> = BTreeMap::new();
    for line in fs::read_to_string(trace).unwrap().lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(thread), Some(call)) = (words.next(), words.next()) else { continue };
        let Some((name, _)) = call.split_once('(') else { continue };
        *by_thread.entry((name.to_owned(), thread.to_owned())).or_default() += 1;
    }
    let mut most: BTreeMap<String, usize> = BTreeMap::new();
    for ((name, _), count) in by_thread {
        let known = most.entry(name).or_default();
        *known = count.max(*known);
    }
    most
}
