//! Starts a run from the command line: `chaos --bin PATH …` or `chaos power-cut --bin PATH …`.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, bail};
use chaos::{fault::Fault, power, run};

const HELP: &str = "\
Usage: chaos --bin PATH [options]            random operations under faults
       chaos power-cut --bin PATH [options]  power cuts at random block writes

Options:
  --bin PATH        the stead executable
  --seed N          seed of plan and faults (default: from the clock)
  --seconds S       how long clients run (default: 30)
  --clients N       number of clients (default: 8)
  --provider NAME   local, namespace, or e2b: another server as the vendor (default: local)
  --faults LIST     kill, term, host-kill, stop, shell-kill, vanish, disk, descriptors, fsync,
                    clock, vendor, separated by commas; all (but vendor) or none
                    (default: kill,term,host-kill,shell-kill,vanish)
  --cuts N          number of power cuts (default: 200)
  --dir PATH        parent of the run's directory (default: the directory for temporary files)
";

const DEFAULT_FAULTS: &str = "kill,term,host-kill,shell-kill,vanish";

fn main() -> ExitCode {
    match start(std::env::args().skip(1).collect()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chaos: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn start(arguments: Vec<String>) -> Result<usize> {
    let mut arguments = arguments.into_iter().peekable();
    let power_cut = arguments.next_if_eq("power-cut").is_some();
    let mut binary = None;
    let mut seed = None;
    let mut cuts = 200;
    let mut options = run::Options {
        binary: PathBuf::new(),
        seed: 0,
        duration: Duration::from_secs(30),
        clients: 8,
        provider: "local".to_owned(),
        faults: Fault::parse_list(DEFAULT_FAULTS)?,
        parent: std::env::temp_dir(),
    };
    while let Some(flag) = arguments.next() {
        if flag == "--help" || flag == "-h" {
            print!("{HELP}");
            return Ok(0);
        }
        let value = arguments.next().with_context(|| format!("{flag} needs a value"))?;
        let number = || value.parse::<u64>().with_context(|| format!("{flag} {value:?}"));
        match flag.as_str() {
            "--bin" => binary = Some(PathBuf::from(&value)),
            "--seed" => seed = Some(number()?),
            "--seconds" => options.duration = Duration::from_secs(number()?),
            "--clients" => options.clients = usize::try_from(number()?)?,
            "--provider" => options.provider = value.clone(),
            "--faults" => options.faults = Fault::parse_list(&value)?,
            "--cuts" => cuts = usize::try_from(number()?)?,
            "--dir" => options.parent = PathBuf::from(&value),
            _ => bail!("unknown option {flag}; see --help"),
        }
    }
    let binary = binary.context("--bin is required; see --help")?;
    options.binary = binary.canonicalize().with_context(|| binary.display().to_string())?;
    options.seed = match seed {
        Some(seed) => seed,
        None => std::time::UNIX_EPOCH.elapsed()?.subsec_nanos().into(),
    };
    println!("seed {}", options.seed);
    let violations = if power_cut { power::run(&options, cuts)? } else { run::run(&options)? };
    if violations > 0 {
        println!("FAILED with seed {}; run again with --seed {0}", options.seed);
    }
    Ok(violations)
}
