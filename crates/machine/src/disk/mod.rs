//! The disks of sandboxes and containers.

pub(crate) mod image;
pub(crate) mod skeleton;
pub(crate) mod store;
mod system_files;
