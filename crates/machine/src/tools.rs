//! Programs of this machine that sandboxes are set up with, such as `nft` and `mkfs.ext4`.

use std::path::{Path, PathBuf};

/// The search path for the machine's tools, and for programs inside a sandbox.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Finds a program by its path, or by its name in [`PATH`].
pub(crate) fn find_program(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return name.is_file().then(|| name.to_owned());
    }
    PATH.split(':').map(|dir| Path::new(dir).join(name)).find(|path| path.is_file())
}
