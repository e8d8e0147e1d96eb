//! The program that the tests drive.

use std::{
    process::{Command, Output, Stdio},
    sync::LazyLock,
};

/// The path of `stead`, which Cargo builds beside the tests of the root package.
pub fn program() -> &'static str {
    static PROGRAM: LazyLock<String> = LazyLock::new(|| {
        let tests = std::env::current_exe().unwrap();
        let program = tests.ancestors().nth(2).unwrap().join("stead");
        assert!(program.exists(), "{} is not built", program.display());
        program.into_os_string().into_string().unwrap()
    });
    &PROGRAM
}

/// Runs `stead` and waits for its end.
pub fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(program())
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}
