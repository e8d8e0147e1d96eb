//! The size of this machine, from which the default limits follow.

use std::fs;

use crate::spec::SandboxSpec;

/// Assumed if the kernel does not report the size of the memory.
const FALLBACK_MEMORY_BYTES: u64 = 2 << 30;

/// The default settings of a sandbox on this machine.
pub(crate) fn default_spec() -> SandboxSpec {
    let memory = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_memory(&text));
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    SandboxSpec::default_for(memory.unwrap_or(FALLBACK_MEMORY_BYTES), cpus)
}

fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? << 10)
}
