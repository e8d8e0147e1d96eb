//! The resource limits of a shell, which the next shell inherits.

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::procs;

/// The limits that a shell's `ulimit` sets, by the names in `/proc/PID/limits`.
const LIMITS: [(&str, Resource); 15] = [
    ("Max cpu time", Resource::Cpu),
    ("Max file size", Resource::Fsize),
    ("Max data size", Resource::Data),
    ("Max stack size", Resource::Stack),
    ("Max core file size", Resource::Core),
    ("Max resident set", Resource::Rss),
    ("Max processes", Resource::Nproc),
    ("Max open files", Resource::Nofile),
    ("Max locked memory", Resource::Memlock),
    ("Max address space", Resource::As),
    ("Max file locks", Resource::Locks),
    ("Max pending signals", Resource::Sigpending),
    ("Max msgqueue size", Resource::Msgqueue),
    ("Max nice priority", Resource::Nice),
    ("Max realtime priority", Resource::Rtprio),
];

/// Returns the limits of a process: a name and two numbers per line.
pub fn read(pid: i32) -> Vec<u8> {
    let text = procs::read_short_file(&format!("/proc/{pid}/limits")).unwrap_or_default();
    let mut found = String::new();
    for line in text.lines() {
        if LIMITS.iter().any(|(name, _)| line.starts_with(name))
            && let Some((name, rest)) = line.split_at_checked(26)
        {
            let mut values = rest.split_ascii_whitespace();
            if let (Some(soft), Some(hard)) = (values.next(), values.next()) {
                found.push_str(&format!("{}:{soft}:{hard}\n", name.trim_end()));
            }
        }
    }
    found.into_bytes()
}

/// Sets the limits of a process to those that [`read`] returned, as far as our permissions allow.
pub fn apply(pid: i32, limits: &[u8]) {
    let Some(pid) = Pid::from_raw(pid) else { return };
    for line in String::from_utf8_lossy(limits).lines() {
        let mut fields = line.split(':');
        let (Some(name), Some(soft), Some(hard)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if let Some((_, resource)) = LIMITS.iter().find(|(known, _)| *known == name) {
            let limit = Rlimit { current: soft.parse().ok(), maximum: hard.parse().ok() };
            let _ = prlimit(Some(pid), *resource, limit);
        }
    }
}
