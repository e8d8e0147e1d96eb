//! Calls that need `unsafe` or a single-threaded process.
//!
//! Almost all of them are made by launchers, which are single-threaded. The server itself only assumes the
//! file permissions of a sandbox temporarily, to write files in it.

mod loop_device;
mod mount;
mod process;
mod user;

pub(crate) use loop_device::{
    grow_ext4, grow_loop_device, lock_unused_image, loop_device, loop_device_of,
};
pub(crate) use mount::{MountAccess, clone_tree, move_mount, restrict};
pub(crate) use process::{
    ForkedTask, bound_socket, close_on_exec_from, end_in_time, enter, exec_with, fork,
    fork_without, keep_on_exec, network_namespace, unshare,
};
pub(crate) use user::{
    as_user, become_first_user, drop_capabilities, enter_own_user_namespace, filter_calls,
    join_own_keyring, keep_capabilities, map_all_users, mapping_namespace,
    may_create_user_namespace, user_namespace,
};
pub use user::{with_identity_of, with_rights_of};
