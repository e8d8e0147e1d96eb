//! The host alone, as the tests of this crate start it: `stead-host host --dir DIR`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(verb) if verb == "host" => host::main(args),
        _ => {
            eprintln!("usage: stead-host host --dir DIR");
            ExitCode::from(2)
        }
    }
}
