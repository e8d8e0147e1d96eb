//! `stead namespace …`: subcommands that the provider runs as single-threaded processes.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use super::{confine, end, flatten, launch};
use crate::network::{connect, read_log};
use crate::spec::EgressPolicy;
use crate::{mount, workspace};

const USAGE: &str = "usage: stead namespace launch DIR | mount PID [SOURCE TARGET]… | reach PID EGRESS | egress-log PID | flatten DISK IMAGE ROOT | end HOME";

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
        ["flatten", disk, image, root] => {
            Err(flatten::flatten(Path::new(disk), Path::new(image), Path::new(root)))
        }
        ["egress-log", pid] => read_log::print_ruleset(pid.parse().unwrap_or(0)),
        ["end", home] => {
            let home = Path::new(home);
            end::end_all(home, |_| true).and_then(|()| workspace::detach_all(home))
        }
        _ => Err(io::Error::other(USAGE)),
    }
}
