//! `stead container …`: subcommands that the provider runs as single-threaded processes.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use super::launch;

/// Runs `stead container` with the arguments that follow.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let error = match words.as_slice() {
        ["launch", dir] => match launch::launch(Path::new(dir)) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => error,
        },
        ["enter", socket, ..] if words.len() == args.len() => {
            launch::enter(Path::new(socket), &args[2..])
        }
        _ => io::Error::other("usage: stead container launch DIR | enter SOCKET ARGUMENTS"),
    };
    eprintln!("stead container: {error}");
    ExitCode::FAILURE
}
