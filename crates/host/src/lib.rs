//! The process that sits beside the shell: it holds the PTYs and keeps their output.

pub mod wire;
