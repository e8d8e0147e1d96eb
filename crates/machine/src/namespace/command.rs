//! `stead namespace …`: subcommands that the provider runs as single-threaded processes.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use super::{confine, end, launch};
use crate::mount;
use crate::network::{connect, read_log};
use crate::spec::EgressPolicy;

const USAGE: &str = "usage: stead namespace launch DIR | mount PID [SOURCE TARGET]… | reach PID EGRESS | egress-log PID | end HOME";

/// Runs `stead sandbox` with the arguments that follow.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stead sandbox: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> io::Result<()> {
    match words {
        ["launch", dir] => launch::launch(Path::new(dir)),
        ["confine", dir] => confine::confine(Path::new(dir)),
        ["mount", pid, directories @ ..] if directories.len() % 2 == 0 => {
            let pairs =
                directories.chunks_exact(2).map(|pair| (Path::new(pair[0]), Path::new(pair[1])));
            mount::mount(pid.parse().unwrap_or(0), &pairs.collect::<Vec<_>>())
        }
        ["reach", pid, egress] => {
            let egress = serde_json::from_str::<EgressPolicy>(egress).map_err(io::Error::from)?;
            connect::replace_rules(pid.parse().unwrap_or(0), &egress)
        }
        ["egress-log", pid] => read_log::print_ruleset(pid.parse().unwrap_or(0)),
        ["end", home] => end::end_all(Path::new(home), |_| true),
        _ => Err(io::Error::other(USAGE)),
    }
}
