//! Code contexts and the programs that run their code.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::process::{ProcessOutput, SandboxProcess};
use base::lock::{StillLocked, locked};
use model::{ThreadId, Timestamp};

/// The limit of a line from a context's program; a longer line is dropped.
const MAX_LINE_BYTES: usize = 16 << 20;
/// How long a cell waits for those before it.
const CELL_WAIT: Duration = Duration::from_secs(60 * 60);
/// The prefix of the tag of a context's program.
const TAG_PREFIX: &str = "stead:context ";

/// The language of a context's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Python,
    JavaScript,
    /// TypeScript, whose types Node.js strips.
    TypeScript,
}

impl Language {
    /// The language with this name; an empty name means Python.
    pub fn named(name: &str) -> Option<Language> {
        match name {
            "" | "python" | "python3" => Some(Language::Python),
            "javascript" | "js" => Some(Language::JavaScript),
            "typescript" | "ts" => Some(Language::TypeScript),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::JavaScript => "javascript",
            Language::TypeScript => "typescript",
        }
    }

    /// The program that runs code in this language, with its arguments.
    pub(super) fn program(self) -> (&'static str, Vec<String>) {
        let (cmd, args) = match self {
            Language::Python => ("python3", ["-u", "-c", include_str!("python.py")].as_slice()),
            // Events go to descriptor 3, so that output of child processes does not mix with them.
            Language::JavaScript | Language::TypeScript => (
                "/bin/sh",
                ["-c", "exec node -e \"$1\" 3>&1 1>&2", "sh", include_str!("javascript.js")]
                    .as_slice(),
            ),
        };
        (cmd, args.iter().map(|arg| (*arg).to_owned()).collect())
    }
}

/// The contexts of all sandboxes.
#[derive(Default)]
pub struct Contexts(Mutex<HashMap<(ThreadId, String), Arc<Context>>>);

pub struct Context {
    pub id: String,
    pub language: Language,
    pub cwd: String,
    /// When this server created or found the context.
    pub created_at: Timestamp,
    /// The running program; locked while it runs a cell, so that cells run one at a time.
    live: tokio::sync::Mutex<Option<ContextProgram>>,
}

/// The program of a context and its output.
pub(super) struct ContextProgram {
    pub(super) process: Arc<SandboxProcess>,
    pub(super) output: mpsc::Receiver<ProcessOutput>,
    /// An incomplete line of output.
    pub(super) rest: Vec<u8>,
}

impl Contexts {
    pub(super) fn all(&self) -> MutexGuard<'_, HashMap<(ThreadId, String), Arc<Context>>> {
        self.0.lock()
    }

    /// Removes the contexts of a deleted sandbox.
    pub fn forget(&self, sandbox: &ThreadId) {
        self.all().retain(|(of, _), _| of != sandbox);
    }
}

impl Context {
    /// Locks the running program, after the cells that came before.
    pub(super) async fn live(
        &self,
    ) -> Result<tokio::sync::MutexGuard<'_, Option<ContextProgram>>, StillLocked> {
        locked("the code context", CELL_WAIT, self.live.lock()).await
    }

    pub(super) fn tag(&self) -> String {
        format!("{TAG_PREFIX}{} {} {}", self.id, self.language.name(), self.cwd)
    }

    pub(super) fn parse(tag: &str) -> Option<Context> {
        let mut words = tag.strip_prefix(TAG_PREFIX)?.splitn(3, ' ');
        let (id, language, cwd) = (words.next()?, words.next()?, words.next()?);
        let language = Language::named(language)?;
        Some(Context::new(id, language, cwd))
    }

    /// A context without a program.
    pub fn new(id: &str, language: Language, cwd: &str) -> Context {
        let live = tokio::sync::Mutex::default();
        Context {
            id: id.to_owned(),
            language,
            cwd: cwd.to_owned(),
            created_at: Timestamp::now(),
            live,
        }
    }
}

/// Whether a program belongs to a context, and was not started by a client.
pub fn is_context(process: &SandboxProcess) -> bool {
    process.tag.as_deref().is_some_and(|tag| tag.starts_with(TAG_PREFIX))
}

impl ContextProgram {
    /// Whether the program has ended. Discards its output since the last cell.
    pub(super) fn has_ended(&mut self) -> bool {
        loop {
            match self.output.try_recv() {
                Ok(ProcessOutput::Stdout(bytes)) => drop(events_of(&mut self.rest, &bytes, "")),
                Ok(ProcessOutput::Stderr(_) | ProcessOutput::Pty(_)) => {}
                Ok(ProcessOutput::End(_)) | Err(mpsc::error::TryRecvError::Disconnected) => {
                    return true;
                }
                Err(mpsc::error::TryRecvError::Empty) => return false,
            }
        }
    }
}

/// Parses output of the program and returns the events of one cell. `rest` holds an incomplete line.
pub(super) fn events_of(rest: &mut Vec<u8>, bytes: &[u8], cell: &str) -> Vec<Value> {
    rest.extend_from_slice(bytes);
    let mut events = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line: Vec<u8> = rest.drain(..=end).collect();
        let Ok(mut event) = serde_json::from_slice::<Value>(&line) else { continue };
        if event["for"] != cell {
            continue;
        }
        if let Some(fields) = event.as_object_mut() {
            fields.remove("for");
        }
        events.push(event);
    }
    if rest.len() > MAX_LINE_BYTES {
        rest.clear();
    }
    events
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_complete_lines_of_the_requested_cell_are_events() {
        let mut rest = Vec::new();
        let mut check = |bytes: &str, expected: Value| {
            assert_eq!(json!(events_of(&mut rest, bytes.as_bytes(), "a")), expected, "{bytes}");
        };
        check("{\"type\":\"stdout\",\"for\":\"a\",\"te", json!([]));
        check("xt\":\"hi\"}\n", json!([{"type": "stdout", "text": "hi"}]));
        check("{\"type\":\"stdout\",\"for\":\"b\"}\nnoise\n", json!([]));
        check("{\"type\":\"control\",\"for\":\"a\"}\n{", json!([{"type": "control"}]));
        let endless = "x".repeat(1 << 20);
        for _ in 0..40 {
            events_of(&mut rest, endless.as_bytes(), "a");
            assert!(rest.len() <= MAX_LINE_BYTES, "{}", rest.len());
        }
    }

    #[test]
    fn a_context_is_parsed_from_the_tag_of_its_program() {
        let context = Context::new("a1", Language::JavaScript, "/home/a b");
        let found = Context::parse(&context.tag()).unwrap();
        assert_eq!((found.id.as_str(), found.language), ("a1", Language::JavaScript));
        assert_eq!(found.cwd, "/home/a b");
        assert!(Context::parse("stead:context a1").is_none());
        assert!(Context::parse("context a1 python /").is_none());
    }
}
