//! Measures the terminals of an instance that can only run `sh -c`: processes are found in `/proc` by the mark
//! they inherit, and the runners record the CPU time of ended commands.

use super::instance::CommandRunner;
use super::spool::{TERMINAL_MARK, bare, quoted, word};
use provider::Metrics;
use provider::ProviderError;

const MEASURE: &str = include_str!("measure.sh");

/// The script for an instance whose directory is `root`.
fn text(root: &str) -> String {
    format!("r={} v={TERMINAL_MARK}\n{}", quoted(root), bare(MEASURE))
}

/// Parses processes, ticks, ticks per second, and kilobytes of memory and of disk.
fn read(answer: &[u8]) -> Option<Metrics> {
    let word = word(answer)?;
    let numbers: Option<Vec<u64>> =
        word.strip_prefix("used ")?.split(' ').map(|word| word.parse().ok()).collect();
    let [processes, ticks, second, memory, disk] = *numbers?.as_slice() else { return None };
    Some(Metrics {
        cpu_us: ticks.saturating_mul(1_000_000).checked_div(second)?,
        memory_bytes: memory.saturating_mul(1024),
        processes,
        disk_bytes: disk.saturating_mul(1024),
        limits: None,
        exceeded: None,
    })
}

pub(super) async fn measure(
    commands: &dyn CommandRunner,
    root: &str,
) -> Result<Metrics, ProviderError> {
    let output = commands.run(text(root)).await?;
    read(&output).ok_or_else(|| {
        let output = String::from_utf8_lossy(&output[..output.len().min(300)]).trim().to_owned();
        let error = std::io::Error::other(format!("unexpected output {output:?}"));
        ProviderError::failed("measure a sandbox", error)
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn measured(root: &str) -> Metrics {
        let output = Command::new("sh").args(["-c", &text(root)]).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!((words.as_ref(), output.status.code()), ("", Some(0)));
        read(&output.stdout)
            .unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stdout)))
    }

    #[test]
    fn processes_are_counted_by_their_mark_and_ended_commands_by_their_record() {
        let root = std::env::temp_dir().join(format!("stead-measure-{}", std::process::id()));
        let terminal = uuid::Uuid::now_v7().to_string();
        let dir = root.join("t").join(&terminal);
        let name = root.display().to_string();
        let nothing = measured(&name);
        assert_eq!(nothing, Metrics::default(), "a missing directory");
        std::fs::create_dir_all(&dir).unwrap();
        let quiet = measured(&name);
        assert_eq!((quiet.processes, quiet.cpu_us, quiet.memory_bytes), (0, 0, 0));
        assert!(quiet.disk_bytes > 0, "{quiet:?}");
        // A closed terminal, and an ended command of an open one.
        std::fs::write(root.join("ticks"), "100\n50\n").unwrap();
        std::fs::write(dir.join("ticks"), "50\n").unwrap();
        let written = measured(&name);
        assert_eq!((written.processes, written.cpu_us), (0, 2_000_000));
        let mut child = Command::new("sleep")
            .arg("1000")
            .env_clear()
            .env(TERMINAL_MARK, &terminal)
            .env("PATH", "/usr/bin:/bin")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Before its `exec`, a process has our environment.
        let seen = (0..10_000).map(|_| measured(&name)).find(|seen| seen.memory_bytes > 0).unwrap();
        assert_eq!(seen.processes, 1);
        assert!(seen.cpu_us >= 2_000_000, "{seen:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(measured(&name).processes, 0);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn an_incomplete_answer_is_not_parsed() {
        for output in ["", "stead: none", "stead: used 1 2 100 4", "stead: used 1 2 0 4 5"] {
            assert_eq!(read(output.as_bytes()), None, "{output}");
        }
    }
}
