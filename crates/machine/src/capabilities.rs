//! The capabilities of root inside, within the sandbox's own user namespace.
//!
//! Decision 34 says what each of them reaches. `SYS_PTRACE` must stay absent: it would open process 1 to the
//! programs inside.

use std::collections::HashSet;

use oci_spec::runtime::Capability;
use rustix::thread::CapabilitySet;

use crate::spec::SandboxCapabilities;

/// The capabilities of root, as the bundle and as the kernel name them.
const ROOT: [(Capability, CapabilitySet); 10] = [
    (Capability::Chown, CapabilitySet::CHOWN),
    (Capability::DacOverride, CapabilitySet::DAC_OVERRIDE),
    (Capability::Fowner, CapabilitySet::FOWNER),
    (Capability::Fsetid, CapabilitySet::FSETID),
    (Capability::Kill, CapabilitySet::KILL),
    (Capability::Setgid, CapabilitySet::SETGID),
    (Capability::Setuid, CapabilitySet::SETUID),
    (Capability::Setpcap, CapabilitySet::SETPCAP),
    (Capability::NetBindService, CapabilitySet::NET_BIND_SERVICE),
    (Capability::SysChroot, CapabilitySet::SYS_CHROOT),
];

/// The capabilities in the configuration for an OCI runtime.
pub(crate) fn in_bundle(capabilities: SandboxCapabilities) -> HashSet<Capability> {
    match capabilities {
        SandboxCapabilities::Root => ROOT.iter().map(|(named, _)| *named).collect(),
        SandboxCapabilities::None => HashSet::new(),
    }
}

/// The same capabilities as a set of the kernel.
pub(crate) fn in_kernel(capabilities: SandboxCapabilities) -> CapabilitySet {
    match capabilities {
        SandboxCapabilities::Root => {
            ROOT.iter().fold(CapabilitySet::empty(), |set, (_, one)| set | *one)
        }
        SandboxCapabilities::None => CapabilitySet::empty(),
    }
}
