//! `stead inside …`: what a build runs inside of its sandbox, where an image may have no program for it.

mod copy;
mod pack;
mod user;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

pub use copy::{DOCKERFILE, archived_file};

use copy::{ArchiveHandling, FileCopy};

const USAGE: &str = "usage: stead inside copy ARCHIVE SOURCE TARGET OWNER MODE keep|extract | pack SOURCE ARCHIVE | as USER PROGRAM [ARGUMENT]…";

/// Runs `stead inside` with the arguments that follow.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let done = match words.as_slice() {
        _ if words.len() < args.len() => Err(io::Error::other("an argument is not UTF-8")),
        ["copy", archive, source, target, owner, mode, archives] => {
            let archives = match *archives {
                "extract" => ArchiveHandling::Extract,
                _ => ArchiveHandling::Keep,
            };
            FileCopy { archive, source, target, owner, mode, archives }.run()
        }
        ["pack", source, archive] => pack::pack(source, Path::new(archive)),
        ["as", user, program, arguments @ ..] => Err(user::exec(user, program, arguments)),
        _ => Err(io::Error::other(USAGE)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
