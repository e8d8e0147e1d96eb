//! Images of sandboxes: imported by an operator, built here, or pulled from OCI registries, verified, unpacked and
//! garbage-collected.
//!
//! ```text
//! HOME/pulled-images/
//!     lock                  shared by pulls and starting sandboxes, exclusive for the garbage collection
//!     layers/<hex>          a layer as the registry sent it, by the SHA-256 of its bytes
//!     layers/<hex>.part     the beginning of a layer; the next pull continues there
//!     roots/<hex>/rootfs    an unpacked image, by the SHA-256 of its configuration
//!     roots/<hex>/config.json, size   its configuration, and the size of its files
//!     names/<hex>.json      an image reference and what it stands for
//! ```
//! Names that begin with a dot are unfinished. Whatever has its final name is complete: it was written and
//! synced under another name before. So a process that is killed leaves nothing but unfinished files and
//! layers, which the next garbage collection removes.
//!
//! This crate does not know sandboxes: its caller says which roots are in use.

mod auth;
mod built;
mod collect;
mod digest;
mod error;
mod fetch;
mod http;
mod imported;
pub mod inside;
mod layout;
mod lock;
mod manifest;
mod path_pattern;
mod reference;
mod registry;
mod settings;
mod store;
mod tree;
mod unpack;

pub use built::{BaseImage, UnfinishedImage};
pub use collect::Collected;
pub use digest::ContentDigest;
pub use error::PullError;
pub use imported::{ExistingImage, ImportError, ImportedImages};
pub use lock::{ImageGuard, open_lock};
pub use manifest::PulledImage;
pub use path_pattern::path_matches;
pub use reference::{BadReference, ImageReference};
pub use settings::ImageSettings;
pub use store::{ImageStore, ImageStoreOptions, ImagesInUse, PullStage};
