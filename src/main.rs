//! The `stead` executable.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The host is this same file started again. It is told apart before anything else happens: no
    // runtime, no thread and no parser of the command line may exist in it.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|verb| verb == "host") {
        return host::main(arguments);
    }
    stead::cli::main()
}
