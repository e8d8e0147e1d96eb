//! The Model Context Protocol: over HTTP, over standard input and output, and its installation in clients.

mod client;
mod sessions;
mod tasks;
mod tools;
