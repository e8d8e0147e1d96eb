//! The `stead` executable.

mod cli;
mod server;
mod web;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The host and a sandbox's launcher are this same file started again. They are told apart before
    // anything else happens: no runtime, no thread and no parser of the command line may exist in them.
    let mut arguments = std::env::args_os().skip(1);
    host::ignore_file_size_signal();
    match arguments.next() {
        Some(verb) if verb == "host" => host::main(arguments),
        Some(verb) if verb == "sandbox" => machine::namespace::main(arguments),
        Some(verb) if verb == "cloud" => cloud::main(arguments),
        Some(verb) if verb == "container" => machine::docker::main(arguments),
        _ => cli::main(),
    }
}
