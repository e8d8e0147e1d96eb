//! Sandboxes on this machine: namespaces of our own and containers of an engine.

pub mod docker;
pub mod namespace;
pub mod volume;

pub use docker::Docker;
pub use namespace::Namespace;
