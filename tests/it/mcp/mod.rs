//! The Model Context Protocol: over HTTP, over standard input and output, and its installation in clients.

mod client;
mod install;
mod schema;
mod sessions;
mod stdio;
mod tasks;
mod tools;
