//! The `stead` executable.

fn main() {}
