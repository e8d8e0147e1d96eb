//! A tree of files with several backends.

mod directory;
mod error;
mod event;
mod list;
pub mod memory;
mod path;
mod remote;
mod remove;
mod rows;
mod search;
mod stat;
mod tree;
mod watch;
mod write;

#[cfg(test)]
mod tests;

pub use directory::{Directory, IdentityScope, Reach};
pub use directory::{open_regular, stat_at};
pub use error::FileError;
pub use event::{FileEvent, FileEventKind};
pub use path::{Relative, TreePath};
pub use remote::{RemoteDirectory, RemoteWrite};
pub use remove::remove_tree_at;
pub use rows::Rows;
pub use search::{Match, SearchLimits, SearchResult};
pub use stat::{FileKind, Stat};
pub use tree::{Backend, Content, Opened, Route, Tree, TreeWatch, Writing};
pub use watch::{Below, Watch, Watched, reserve_watches};
pub use write::{Above, PartialFile};
