//! The `stead` executable.

mod book;
mod embedded;
mod web;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Hosts and the launchers of sandboxes run this same executable. They are dispatched before anything else:
    // they must not have a runtime, threads or a parser of the command line.
    let mut arguments = std::env::args_os().skip(1);
    host::ignore_file_size_signal();
    match arguments.next() {
        Some(verb) if verb == "host" => host::main(arguments),
        Some(verb) if verb == "namespace" => machine::namespace::main(arguments),
        Some(verb) if verb == "cloud" => cloud::main(arguments),
        Some(verb) if verb == "inside" => machine::inside::main(arguments),
        Some(verb) if verb == "container" => machine::docker::main(arguments),
        _ => cli::main(web::ASSETS),
    }
}
