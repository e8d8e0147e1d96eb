//! The list of denied system calls.
//!
//! A deny-list, because all programs of an agent have to work. A call that is not in it needs a capability
//! that no program inside has, or is limited by a namespace or a cgroup. Only the machine's own word size
//! is
//! allowed: the 32-bit entry has a `socketcall` whose arguments a filter cannot see.

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder,
    LinuxSeccompBuilder, LinuxSeccompOperator, LinuxSyscall, LinuxSyscallBuilder,
};

use crate::spec::SandboxCapabilities;

/// Denied calls: their names, the conditions that all have to hold, and the error they return.
#[derive(Debug, Clone)]
pub(super) struct DeniedCalls {
    pub(super) names: &'static [&'static str],
    pub(super) when: Vec<ArgCondition>,
    pub(super) errno: i32,
}

/// A condition on an argument, by its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArgCondition {
    /// All these bits are set.
    Bits(usize, u64),
    /// Its lower 32 bits are this; the kernel ignores the rest of an `int`.
    Int(usize, u32),
    /// Masked by the first value, it equals the second.
    Masked(usize, u64, u64),
    /// It is greater than this.
    Above(usize, u64),
}

/// Calls that are denied for all arguments.
const NEVER: &[&str] = &[
    "acct",
    "add_key",
    "bpf",
    "clock_adjtime",
    "clock_settime",
    "create_module",
    "delete_module",
    "fanotify_init",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "get_kernel_syms",
    "init_module",
    "ioperm",
    "iopl",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "listmount",
    "listns",
    "lookup_dcookie",
    "lsm_set_self_attr",
    "mbind",
    "memfd_secret",
    "migrate_pages",
    "modify_ldt",
    "mount",
    "mount_setattr",
    "move_mount",
    "move_pages",
    "name_to_handle_at",
    "nfsservctl",
    "open_by_handle_at",
    "open_tree",
    "open_tree_attr",
    "perf_event_open",
    "personality",
    "pidfd_getfd",
    "pivot_root",
    "process_madvise",
    "process_mrelease",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "query_module",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "request_key",
    "set_mempolicy",
    "set_mempolicy_home_node",
    "setdomainname",
    "sethostname",
    "setns",
    "settimeofday",
    "statmount",
    "stime",
    "swapoff",
    "swapon",
    "sysfs",
    "_sysctl",
    "syslog",
    "umount",
    "umount2",
    "uselib",
    "userfaultfd",
    "ustat",
    "vhangup",
    "vm86",
    "vm86old",
];

/// Calls that need a capability which only root inside may have.
const ROOT_ONLY: &[&str] = &["chroot"];

/// Calls for which programs have a fallback if the kernel does not know them.
const UNKNOWN: &[&str] =
    &["clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "openat2", "fchmodat2"];

/// The allowed socket families: unix, inet, inet6, netlink.
const FAMILIES: [u64; 4] = [1, 2, 10, 16];

/// Denied types of internet sockets: rdm, seqpacket, dccp, packet.
const RARE_KINDS: [u64; 4] = [4, 5, 6, 10];

/// Denied internet protocols, which few programs use: dccp, l2tp, sctp, udplite.
const RARE_PROTOCOLS: [u32; 4] = [33, 115, 132, 136];

const NEW_USER: u64 = 0x1000_0000;

/// The flags of new namespaces, in which a process would have capabilities.
const NAMESPACES: [u64; 8] = [
    0x0000_0080, // time
    0x0002_0000, // mount
    0x0200_0000, // cgroup
    0x0400_0000, // uts
    0x0800_0000, // ipc
    NEW_USER,
    0x2000_0000, // pid
    0x4000_0000, // network
];

const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;
const TIOCSETD: u32 = 0x5423;

const SET_ID: [u64; 2] = [0o4000, 0o2000];
const O_CREAT: u64 = 0o100;
const O_TMPFILE: u64 = 0o20_000_000;

/// The denied calls of a sandbox with these capabilities.
pub(super) fn denied(capabilities: SandboxCapabilities) -> Vec<DeniedCalls> {
    let mut list = vec![
        DeniedCalls { names: NEVER, when: vec![], errno: libc::EPERM },
        DeniedCalls { names: UNKNOWN, when: vec![], errno: libc::ENOSYS },
    ];
    let mut add = |names: &'static [&'static str], when: Vec<ArgCondition>, errno: i32| {
        list.push(DeniedCalls { names, when, errno });
    };
    for bit in NAMESPACES {
        add(&["unshare"], vec![ArgCondition::Bits(0, bit)], libc::EPERM);
        // The low byte of the flags of clone is a signal, so it cannot request a time namespace.
        if bit > 0xff {
            add(&["clone"], vec![ArgCondition::Bits(0, bit)], libc::EPERM);
        }
    }
    for request in [TIOCSTI, TIOCLINUX, TIOCSETD] {
        add(&["ioctl"], vec![ArgCondition::Int(1, request)], libc::EPERM);
    }
    let sockets: &[&str] = &["socket", "socketpair"];
    let last = FAMILIES[FAMILIES.len() - 1];
    for family in (0..last).filter(|family| !FAMILIES.contains(family)) {
        add(sockets, vec![ArgCondition::Int(0, family as u32)], libc::EAFNOSUPPORT);
    }
    add(sockets, vec![ArgCondition::Above(0, last)], libc::EAFNOSUPPORT);
    // Of netlink, only routes and socket diagnosis are allowed: the rest is for administrators.
    for protocol in [1, 2, 3] {
        let when = vec![ArgCondition::Int(0, 16), ArgCondition::Int(2, protocol)];
        add(sockets, when, libc::EPROTONOSUPPORT);
    }
    let when = vec![ArgCondition::Int(0, 16), ArgCondition::Above(2, 4)];
    add(sockets, when, libc::EPROTONOSUPPORT);
    // Rare protocols would make the kernel load their modules.
    for family in [2, 10] {
        for kind in RARE_KINDS {
            let when = vec![ArgCondition::Int(0, family), ArgCondition::Masked(1, 0xf, kind)];
            add(sockets, when, libc::ESOCKTNOSUPPORT);
        }
        for protocol in RARE_PROTOCOLS {
            let when = vec![ArgCondition::Int(0, family), ArgCondition::Int(2, protocol)];
            add(sockets, when, libc::EPROTONOSUPPORT);
        }
    }
    match capabilities {
        // Its workspaces have user ids that mean nothing on the machine.
        SandboxCapabilities::Root => return list,
        SandboxCapabilities::None => add(ROOT_ONLY, vec![], libc::EPERM),
    }
    // A workspace is also a directory of the machine, where a set-id file would be effective.
    for bits in SET_ID {
        for (names, mode) in
            [(&["chmod", "fchmod", "mknod", "creat"] as &[_], 1), (&["fchmodat", "mknodat"], 2)]
        {
            add(names, vec![ArgCondition::Bits(mode, bits)], libc::EPERM);
        }
        for flag in [O_CREAT, O_TMPFILE] {
            let when = vec![ArgCondition::Bits(1, flag), ArgCondition::Bits(2, bits)];
            add(&["open"], when, libc::EPERM);
            let when = vec![ArgCondition::Bits(2, flag), ArgCondition::Bits(3, bits)];
            add(&["openat"], when, libc::EPERM);
        }
    }
    list
}

/// The list as an OCI seccomp profile.
///
/// # Errors
/// If the builder refuses, which would be our bug.
pub(crate) fn oci(capabilities: SandboxCapabilities) -> Result<LinuxSeccomp, OciSpecError> {
    profile(denied(capabilities))
}

/// The profile for a process 1 that enters a user namespace of its own before it becomes the host. The whole
/// list is loaded after that.
///
/// # Errors
/// If the builder refuses, which would be our bug.
pub(crate) fn oci_of_entry(
    capabilities: SandboxCapabilities,
) -> Result<LinuxSeccomp, OciSpecError> {
    let enters = [ArgCondition::Bits(0, NEW_USER)];
    let mut list = denied(capabilities);
    list.retain(|denied| denied.names != ["unshare"] || denied.when != enters);
    profile(list)
}

fn profile(list: Vec<DeniedCalls>) -> Result<LinuxSeccomp, OciSpecError> {
    let arch =
        if cfg!(target_arch = "aarch64") { Arch::ScmpArchAarch64 } else { Arch::ScmpArchX86_64 };
    let syscalls = list.iter().map(syscall).collect::<Result<Vec<_>, _>>()?;
    LinuxSeccompBuilder::default()
        .default_action(LinuxSeccompAction::ScmpActAllow)
        .architectures([arch])
        .syscalls(syscalls)
        .build()
}

fn syscall(denied: &DeniedCalls) -> Result<LinuxSyscall, OciSpecError> {
    let names: Vec<String> = denied.names.iter().map(|name| (*name).to_owned()).collect();
    let builder = LinuxSyscallBuilder::default()
        .names(names)
        .action(LinuxSeccompAction::ScmpActErrno)
        .errno_ret(denied.errno as u32);
    if denied.when.is_empty() {
        return builder.build();
    }
    let arguments = denied.when.iter().map(argument).collect::<Result<Vec<_>, _>>()?;
    builder.args(arguments).build()
}

fn argument(condition: &ArgCondition) -> Result<LinuxSeccompArg, OciSpecError> {
    let builder = LinuxSeccompArgBuilder::default();
    match *condition {
        // In a masked comparison, the first value is the mask.
        ArgCondition::Bits(index, bits) => builder
            .index(index)
            .value(bits)
            .value_two(bits)
            .op(LinuxSeccompOperator::ScmpCmpMaskedEq)
            .build(),
        ArgCondition::Int(index, value) => builder
            .index(index)
            .value(0xffff_ffff_u64)
            .value_two(u64::from(value))
            .op(LinuxSeccompOperator::ScmpCmpMaskedEq)
            .build(),
        ArgCondition::Masked(index, mask, value) => builder
            .index(index)
            .value(mask)
            .value_two(value)
            .op(LinuxSeccompOperator::ScmpCmpMaskedEq)
            .build(),
        ArgCondition::Above(index, value) => {
            builder.index(index).value(value).op(LinuxSeccompOperator::ScmpCmpGt).build()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rule_compares_one_argument_twice() {
        // libseccomp would treat such a rule as two rules, of which either suffices.
        for denied in denied(SandboxCapabilities::None) {
            let mut indexes: Vec<usize> = denied
                .when
                .iter()
                .map(|condition| match condition {
                    ArgCondition::Bits(index, _)
                    | ArgCondition::Int(index, _)
                    | ArgCondition::Masked(index, ..)
                    | ArgCondition::Above(index, _) => *index,
                })
                .collect();
            let count = indexes.len();
            indexes.dedup();
            assert_eq!(indexes.len(), count, "{denied:?}");
        }
    }

    #[test]
    fn root_may_change_its_root_and_create_set_id_files() {
        let names = |capabilities| {
            let list = denied(capabilities).into_iter();
            list.flat_map(|denied| denied.names).copied().collect::<Vec<_>>()
        };
        for name in ["chroot", "chmod", "fchmodat", "openat"] {
            assert!(names(SandboxCapabilities::None).contains(&name), "{name}");
            assert!(!names(SandboxCapabilities::Root).contains(&name), "{name}");
        }
        for name in ["mount", "setns", "ptrace", "unshare", "bpf"] {
            assert!(names(SandboxCapabilities::Root).contains(&name), "{name}");
        }
    }

    #[test]
    fn tiocsti_is_denied_for_any_upper_half_of_the_argument() {
        let json = serde_json::to_value(oci(SandboxCapabilities::None).unwrap()).unwrap();
        let rules = json["syscalls"].as_array().unwrap();
        assert!(rules.iter().any(|rule| rule["names"][0] == "ioctl"
            && rule["args"][0]["value"] == 0xffff_ffff_u64
            && rule["args"][0]["valueTwo"] == 0x5412));
        assert!(rules.iter().any(|rule| rule["names"][0] == "clone3" && rule["errnoRet"] == 38));
    }
}
