//! The origin of what no vendor's API created.

/// The origin of the sandboxes and the rows of image builds.
pub const IMAGE_ORIGIN: &str = "image";
