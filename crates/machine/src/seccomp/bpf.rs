//! The list of denied system calls as BPF programs.
//!
//! They are compiled here by number, and not by the runtime by name: a runtime ignores calls that its
//! library does not know. The host installs them before it does anything else, so every process in the
//! sandbox inherits them. If root inside has capabilities, the runtime installs them before it starts the host:
//! without `no_new_privs`, installing needs a capability that the host does not get.
//!
//! There is one program for each error number, preceded by one that kills the process on a call of another
//! word size and returns `ENOSYS` for calls that are newer than this list.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use super::denied::{ArgCondition, DeniedCalls, denied};
use crate::spec::SandboxCapabilities;

/// The first call number that is newer than this list. The numbers of x32 calls are far greater.
const FIRST_UNKNOWN: u32 = 470;

/// All programs as the host reads them: for each the number of instructions, then the instructions.
///
/// # Errors
/// If a rule is refused, which would be our bug.
pub(crate) fn encoded(capabilities: SandboxCapabilities) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for program in programs(capabilities)? {
        bytes.extend((program.len() as u32).to_ne_bytes());
        for sock_filter { code, jt, jf, k } in program {
            bytes.extend(code.to_ne_bytes());
            bytes.extend([jt, jf]);
            bytes.extend(k.to_ne_bytes());
        }
    }
    Ok(bytes)
}

/// All programs, in the order in which they are installed.
///
/// # Errors
/// If a rule is refused, which would be our bug.
pub(crate) fn programs(capabilities: SandboxCapabilities) -> io::Result<Vec<BpfProgram>> {
    let mut all = vec![first_program()];
    let mut by_errno: BTreeMap<i32, BTreeMap<i64, Vec<SeccompRule>>> = BTreeMap::new();
    let list = denied(capabilities);
    for denied in &list {
        for number in denied.names.iter().filter_map(|name| number(name)) {
            let rules = by_errno.entry(denied.errno).or_default().entry(number).or_default();
            rules.extend(rule(denied)?);
        }
    }
    // A call without conditions is denied for all arguments.
    for denied in list.iter().filter(|denied| denied.when.is_empty()) {
        for number in denied.names.iter().filter_map(|name| number(name)) {
            by_errno.entry(denied.errno).or_default().insert(number, vec![]);
        }
    }
    for (errno, rules) in by_errno {
        let errno = SeccompAction::Errno(errno.unsigned_abs());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, errno, arch());
        let program: Result<BpfProgram, _> = filter.map_err(io::Error::other)?.try_into();
        all.push(program.map_err(io::Error::other)?);
    }
    Ok(all)
}

fn arch() -> TargetArch {
    if cfg!(target_arch = "aarch64") { TargetArch::aarch64 } else { TargetArch::x86_64 }
}

/// Kills the process on a call of another word size, and returns `ENOSYS` for newer calls.
fn first_program() -> BpfProgram {
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const GREATER_OR_EQUAL: u16 = 0x35;
    const RETURN: u16 = 0x06;
    let arch = if cfg!(target_arch = "aarch64") { 0xc000_00b7 } else { 0xc000_003e };
    let unknown = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    [
        (LOAD, 0, 0, 4),
        (EQUAL, 1, 0, arch),
        (RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        (LOAD, 0, 0, 0),
        (GREATER_OR_EQUAL, 0, 1, FIRST_UNKNOWN),
        (RETURN, 0, 0, unknown),
        (RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
    .map(|(code, jt, jf, k)| sock_filter { code, jt, jf, k })
    .to_vec()
}

fn rule(denied: &DeniedCalls) -> io::Result<Option<SeccompRule>> {
    if denied.when.is_empty() {
        return Ok(None);
    }
    let conditions = denied.when.iter().map(condition).collect::<io::Result<Vec<_>>>()?;
    SeccompRule::new(conditions).map(Some).map_err(io::Error::other)
}

/// Every compared argument is an `int` or has its flags in the lower 32 bits.
fn condition(condition: &ArgCondition) -> io::Result<SeccompCondition> {
    let (index, compare, value) = match *condition {
        ArgCondition::Bits(index, bits) => (index, SeccompCmpOp::MaskedEq(bits), bits),
        ArgCondition::Int(index, value) => (index, SeccompCmpOp::Eq, u64::from(value)),
        ArgCondition::Masked(index, mask, value) => (index, SeccompCmpOp::MaskedEq(mask), value),
        ArgCondition::Above(index, value) => (index, SeccompCmpOp::Gt, value),
    };
    let index = u8::try_from(index).map_err(io::Error::other)?;
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, compare, value).map_err(io::Error::other)
}

/// The number of a call; `None` if this architecture does not have it.
pub(super) fn number(name: &str) -> Option<i64> {
    let known = NUMBERS.iter().chain(OLD);
    known.into_iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// The calls that all architectures have. From 424 on, the numbers are the same everywhere.
#[rustfmt::skip]
const NUMBERS: &[(&str, i64)] = &[
    ("acct", libc::SYS_acct),
    ("add_key", libc::SYS_add_key),
    ("bpf", libc::SYS_bpf),
    ("chroot", libc::SYS_chroot),
    ("clock_adjtime", libc::SYS_clock_adjtime),
    ("clock_settime", libc::SYS_clock_settime),
    ("clone", libc::SYS_clone),
    ("delete_module", libc::SYS_delete_module),
    ("fanotify_init", libc::SYS_fanotify_init),
    ("fchmod", libc::SYS_fchmod),
    ("fchmodat", libc::SYS_fchmodat),
    ("finit_module", libc::SYS_finit_module),
    ("init_module", libc::SYS_init_module),
    ("ioctl", libc::SYS_ioctl),
    ("kcmp", libc::SYS_kcmp),
    ("kexec_file_load", libc::SYS_kexec_file_load),
    ("kexec_load", libc::SYS_kexec_load),
    ("keyctl", libc::SYS_keyctl),
    ("mbind", libc::SYS_mbind),
    ("migrate_pages", libc::SYS_migrate_pages),
    ("mknodat", libc::SYS_mknodat),
    ("mount", libc::SYS_mount),
    ("move_pages", libc::SYS_move_pages),
    ("name_to_handle_at", libc::SYS_name_to_handle_at),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("openat", libc::SYS_openat),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("personality", libc::SYS_personality),
    ("pivot_root", libc::SYS_pivot_root),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("ptrace", libc::SYS_ptrace),
    ("quotactl", libc::SYS_quotactl),
    ("reboot", libc::SYS_reboot),
    ("request_key", libc::SYS_request_key),
    ("set_mempolicy", libc::SYS_set_mempolicy),
    ("setdomainname", libc::SYS_setdomainname),
    ("sethostname", libc::SYS_sethostname),
    ("setns", libc::SYS_setns),
    ("settimeofday", libc::SYS_settimeofday),
    ("socket", libc::SYS_socket),
    ("socketpair", libc::SYS_socketpair),
    ("swapoff", libc::SYS_swapoff),
    ("swapon", libc::SYS_swapon),
    ("syslog", libc::SYS_syslog),
    ("umount2", libc::SYS_umount2),
    ("unshare", libc::SYS_unshare),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("vhangup", libc::SYS_vhangup),
    ("clone3", 435),
    ("fchmodat2", 452),
    ("fsconfig", 431),
    ("fsmount", 432),
    ("fsopen", 430),
    ("fspick", 433),
    ("io_uring_enter", 426),
    ("io_uring_register", 427),
    ("io_uring_setup", 425),
    ("listmount", 458),
    ("listns", 470),
    ("lsm_set_self_attr", 460),
    ("memfd_secret", 447),
    ("mount_setattr", 442),
    ("move_mount", 429),
    ("open_tree", 428),
    ("open_tree_attr", 467),
    ("openat2", 437),
    ("pidfd_getfd", 438),
    ("process_madvise", 440),
    ("process_mrelease", 448),
    ("quotactl_fd", 443),
    ("set_mempolicy_home_node", 450),
    ("statmount", 457),
];

/// Calls of older machines.
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[(&str, i64)] = &[];
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const OLD: &[(&str, i64)] = &[
    ("_sysctl", 156),
    ("chmod", 90),
    ("creat", 85),
    ("create_module", 174),
    ("get_kernel_syms", 177),
    ("ioperm", 173),
    ("iopl", 172),
    ("lookup_dcookie", 212),
    ("mknod", 133),
    ("modify_ldt", 154),
    ("nfsservctl", 180),
    ("open", 2),
    ("query_module", 178),
    ("sysfs", 139),
    ("uselib", 134),
    ("ustat", 136),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_the_list_has_a_number_unless_this_architecture_lacks_it() {
        let mut without: Vec<&str> = denied(SandboxCapabilities::None)
            .iter()
            .flat_map(|denied| denied.names)
            .filter(|name| number(name).is_none())
            .copied()
            .collect();
        without.sort_unstable();
        without.dedup();
        if cfg!(target_arch = "x86_64") {
            assert_eq!(without, ["stime", "umount", "vm86", "vm86old"]);
        }
    }

    #[test]
    fn the_programs_fit_the_kernel() {
        let bytes = encoded(SandboxCapabilities::None).unwrap();
        let (mut at, mut count) = (0, 0);
        while at < bytes.len() {
            let length = u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
            assert!((1..=4096).contains(&length), "{length} instructions");
            at += 4 + length * 8;
            count += 1;
        }
        assert_eq!(at, bytes.len());
        assert!(count >= 4, "{count} programs");
    }
}
