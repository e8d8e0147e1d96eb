//! Sandboxes on this machine: Linux namespaces of our own, and containers of an engine.
//!
//! [`Namespace`] and [`Docker`] are two kinds of the same provider: `hosted` implements the provider
//! traits,
//! and `kind` is the trait for their differences. Both use the modules below; neither uses the other.

mod blocking;
mod capabilities;
mod disk;
mod disk_governor;
pub mod docker;
mod files;
mod hosted;
mod image_build;
mod instances;
mod kind;
mod label;
mod layout;
mod lock;
mod machine_size;
mod mount;
pub mod namespace;
mod network;
mod pool;
mod port;
mod private_programs;
mod program_layers;
mod programs;
mod quota;
mod sandbox_images;
mod seccomp;
mod shared_tree;
mod slot;
mod spec;
mod sys;
mod terminal_dir;
mod tools;
mod untrusted_tree;
pub mod volume;
mod workspace;

pub use disk::store::ImageUse;
pub use disk_governor::{DISK_GOVERNOR_INTERVAL, DiskGovernor, LatencyProbe};
pub use docker::Docker;
pub use image_build::{ImageBuildError, ImageBuilds};
pub use images::{
    BaseImage, ImageReference, ImageSettings, ImageStoreOptions, PullStage, inside, path_matches,
};
pub use layout::program_inside;
pub use namespace::Namespace;
pub use network::rules::{AddressBlock, EgressTarget};
pub use pool::Prewarm;
pub use sandbox_images::{image_store, image_store_options, image_uses};
pub use spec::{EgressPolicy, SandboxCapabilities, SandboxSpec, is_image_name};
pub use sys::{with_identity_of, with_rights_of};
pub use workspace::WorkspaceImages;
