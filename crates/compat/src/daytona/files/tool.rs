//! Runs programs of the sandbox on its files.

use super::query::{DaytonaFileQuery, refused};
use crate::daytona::DaytonaRefusal;
use adapter::{
    Adapter,
    instance::relative,
    process::{ProcessEnd, Start},
    wrap::Config,
};
use store::SandboxRecord;

/// Runs a program on files. Returns its exit code and output.
pub(super) async fn tool(
    app: &Adapter,
    sandbox: &SandboxRecord,
    cmd: &str,
    args: &[&str],
) -> Result<(i32, Vec<u8>), DaytonaRefusal> {
    let start = Start {
        config: Config {
            cmd: cmd.to_owned(),
            args: args.iter().map(|word| (*word).to_owned()).collect(),
            ..Config::default()
        },
        tag: None,
        stdin: false,
        timeout: Some(std::time::Duration::from_secs(60)),
        pty: None,
    };
    let result = app.run_process(sandbox, start).await?;
    match result.end {
        // Exit codes up to 2 include files that the program could not read.
        ProcessEnd::Exit(code @ 0..=2) => Ok((code, result.stdout)),
        _ => Err(DaytonaRefusal::bad(String::from_utf8_lossy(&result.stderr).trim().to_owned())),
    }
}

/// The requested path, which must exist.
pub(super) async fn existing_path(
    app: &Adapter,
    sandbox: &SandboxRecord,
    query: &DaytonaFileQuery,
) -> Result<String, DaytonaRefusal> {
    let path = query.absolute_path(sandbox);
    let target = path.clone();
    let files = app.sandbox_files(sandbox).await?;
    let found = files.act(move |directory| directory.stat_followed(&relative(&target)?)).await;
    found.map_err(|error| refused(error, &path))?;
    Ok(path)
}
