//! Runs the cases in case files: each case has a new terminal in an empty directory and a list of steps.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use wire::{Outcome, Shell, StdinMode};

use crate::bench::{Bench, CommandResult};
use crate::support::Host;

#[test]
fn the_given_cases_pass_exactly() {
    let given = std::env::var_os("STEAD_CASES").map(PathBuf::from).or_else(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../shared/conformance/exec_cases.json");
        path.exists().then_some(path)
    });
    match given {
        Some(path) => run_file(&Host::start(), &path),
        None => eprintln!("skipped: no case file (set STEAD_CASES)"),
    }
}

#[test]
fn our_own_cases_pass_exactly() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let host = Host::start();
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "json")) {
        run_file(&host, file);
    }
}

fn run_file(host: &Host, path: &Path) {
    let text = std::fs::read_to_string(path).unwrap();
    let cases: Value = serde_json::from_str(&text).unwrap();
    let only = std::env::var("STEAD_CASE").ok();
    let mut failures = Vec::new();
    let mut count = 0;
    for case in cases.as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        if let Some(shell) = case["shell"].as_str()
            && !Path::new("/bin").join(shell).exists()
        {
            eprintln!("skipped {name}: {shell} is not installed");
            continue;
        }
        count += 1;
        if let Err(why) = run_case(host, case) {
            eprintln!("FAILED {name}: {why}");
            failures.push(name.to_owned());
        }
    }
    eprintln!("{}: {} of {count} passed", path.display(), count - failures.len());
    assert!(failures.is_empty(), "failed: {failures:?}");
}

fn run_case(host: &Host, case: &Value) -> Result<(), String> {
    let shell = match case["shell"].as_str() {
        None | Some("bash") => Shell::Bash,
        Some("zsh") => Shell::Zsh,
        Some("sh" | "busybox") => Shell::Sh,
        Some(other) => return Err(format!("unknown shell {other}")),
    };
    let mut bench = match case["shell"].as_str() {
        Some("busybox") => Bench::running(host, &["busybox", "sh"], shell, Vec::new()),
        _ => Bench::new(host, shell),
    };
    for (nth, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        let mut spec = bench.spec(step["cmd"].as_str().unwrap().as_bytes());
        spec.timeout = Duration::from_millis(step["timeout_ms"].as_u64().unwrap_or(30_000));
        for (name, value) in step["env"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap().as_bytes().to_vec();
            spec.env.push((name.as_bytes().to_vec(), value));
        }
        spec.cwd = step["cwd"].as_str().unwrap_or_default().as_bytes().to_vec();
        if let Some(text) = step["stdin"].as_str() {
            spec.stdin = StdinMode::Given;
            spec.stdin_data = text.as_bytes().to_vec();
        }
        let ran = bench.run_spec(&spec);
        check(&step["expect"], &ran).map_err(|why| {
            let shown =
                |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(400)]).into_owned();
            format!(
                "step {nth}: {why}; stdout {:?}, stderr {:?}, {:?}",
                shown(&ran.stdout),
                shown(&ran.stderr),
                (ran.outcome, ran.exit_code, ran.signal, ran.shell_restarted)
            )
        })?;
    }
    bench.close();
    Ok(())
}

fn check(expect: &Value, ran: &CommandResult) -> Result<(), String> {
    for (key, wanted) in expect.as_object().unwrap() {
        let same = match key.as_str() {
            "exit_code" => ran.exit_code.map(i64::from) == wanted.as_i64(),
            "timed_out" => Some(ran.outcome == Outcome::TimedOut) == wanted.as_bool(),
            "stdout" => wanted.as_str().is_some_and(|text| text.as_bytes() == ran.stdout),
            "stderr" => wanted.as_str().is_some_and(|text| text.as_bytes() == ran.stderr),
            "stdout_contains" => contains(&ran.stdout, wanted),
            "stderr_contains" => contains(&ran.stderr, wanted),
            "stdout_len" => wanted.as_u64() == Some(ran.stdout.len() as u64),
            "stderr_len" => wanted.as_u64() == Some(ran.stderr.len() as u64),
            "stdout_base64" => wanted.as_str() == Some(piped("base64 -w0", &ran.stdout).as_str()),
            "stdout_sha256" => {
                piped("sha256sum", &ran.stdout).starts_with(wanted.as_str().unwrap_or("?"))
            }
            "max_ms" => wanted.as_u64().is_some_and(|max| ran.took.as_millis() <= u128::from(max)),
            "shell_restarted" => wanted.as_bool() == Some(ran.shell_restarted),
            other => return Err(format!("unknown expectation {other}")),
        };
        if !same {
            return Err(format!("{key} is not {wanted} (took {:?})", ran.took));
        }
    }
    if ran.outcome == Outcome::NotStarted || ran.outcome == Outcome::Lost {
        return Err("the command did not run".to_owned());
    }
    Ok(())
}

fn contains(bytes: &[u8], wanted: &Value) -> bool {
    let wanted = wanted.as_str().unwrap_or_default().as_bytes();
    bytes.windows(wanted.len().max(1)).any(|window| window == wanted)
}

fn piped(program: &str, bytes: &[u8]) -> String {
    let mut words = program.split(' ');
    let mut child = Command::new(words.next().unwrap())
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim_end().to_owned()
}
