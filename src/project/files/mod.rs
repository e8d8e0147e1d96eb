//! One tree of files over several backends.

mod directory;
mod event;
mod list;
mod remove;
pub(crate) mod rows;
mod search;
mod tree;
mod watch;
mod write;

#[cfg(test)]
mod tests;

pub use directory::{Directory, Reach};
pub(crate) use directory::{open_regular, stat_at};
pub use event::{FileEvent, Happened};
pub(crate) use remove::remove_tree_at;
pub use rows::Rows;
pub use search::{Found, Match, SearchLimits};
pub use tree::{Backend, Content, Opened, Route, Tree, TreeWatch, Writing};
pub use watch::{Below, Watch, Watched};
pub use write::{Above, Part};
