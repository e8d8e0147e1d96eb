//! The `stead` executable.

use std::process::ExitCode;

fn main() -> ExitCode {
    stead::cli::main()
}
