//! The system calls that programs in a sandbox may not make.

pub(crate) mod bpf;
pub(crate) mod denied;
