//! A client: executes the steps of its plan and records the answers.
//!
//! `mod` has the shared parts and the operations on keys that all clients share; `own` has the operations on
//! the client's own thread.

mod own;
mod own_state;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::{
    fault::Fault,
    http::{Http, HttpFailure, HttpRequest, HttpResponse, Vanish},
    ledger::{Expected, Ledger},
    plan::{self, FILES, PlannedAction, PlannedStep, ReadBy, VARIABLES, WriteBy},
    register::{self, INITIAL, RegisterOperation, WriteOutcome},
    report::Report,
};

/// Attempts to send a request with an `Idempotency-Key` or a `write_id`.
const MAX_ATTEMPTS: usize = 40;
/// The delay between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(150);
/// How long a command may take to end, including its own timeout and all faults.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);
/// How many receipts a client keeps, to compare them later.
const MAX_RECEIPTS: usize = 400;
/// Parts of a receipt that never change once the command has ended.
const FINAL_FIELDS: [&str; 11] = [
    "status",
    "exit_code",
    "signal",
    "timed_out",
    "stdout",
    "stderr",
    "stdout_bytes",
    "stderr_bytes",
    "version",
    "cwd",
    "changes",
];

/// A thread and its default terminal.
#[derive(Debug, Clone)]
pub struct TestThread {
    /// The id that the client chose.
    pub name: String,
    /// The id of its default terminal.
    pub terminal: String,
}

/// The state that all clients share.
#[derive(Debug)]
pub struct ClientsWorld {
    /// The connection to the server.
    pub http: Http,
    /// Counts and violations.
    pub report: Arc<Report>,
    /// The project of all threads.
    pub project: String,
    /// Threads whose variables all clients use.
    pub registers: Vec<TestThread>,
    /// Side effects of commands in each of these threads.
    pub effects: Vec<Mutex<Ledger>>,
    /// Operations by key.
    pub histories: Mutex<BTreeMap<String, Vec<RegisterOperation>>>,
    /// Whether faults end programs, so that typed input can be lost after it was acknowledged.
    pub programs_die: bool,
    /// Whether faults fill the disk, so that the end of an output is only counted.
    pub disk_fills: bool,
    /// Where commands find the files of the project.
    pub workspace: FileAccess,
}

/// Where commands find the files of the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// In a directory that all threads and the file API share.
    Shared,
    /// In the sandbox of each thread, which a vendor has.
    InSandbox,
}

/// The outcome of a command.
#[derive(Debug)]
enum Ran {
    /// It has ended, and this is the receipt.
    Ended(Value),
    /// The command never started.
    Refused,
    /// The outcome is unknown.
    Unknown,
}

impl ClientsWorld {
    /// Creates a thread in the project and starts its shell.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn create_thread(&self, name: &str) -> Result<TestThread> {
        let target = format!("/api/threads/{name}");
        let body = json!({"project_id": self.project});
        let answer = self.http.send(&HttpRequest::new("PUT", &target).json(&body), None);
        let answer = expect_success("create a thread", answer)?;
        let terminal = answer.json()["sandbox"]["terminal_id"].as_str().map(str::to_owned);
        let terminal = terminal.context("a new thread has no terminal")?;
        let exec =
            HttpRequest::new("POST", format!("{target}/exec")).json(&json!({"command": "true"}));
        expect_success("run the first command", self.http.send(&exec, None))?;
        Ok(TestThread { name: name.to_owned(), terminal })
    }

    /// Sends a request and counts the client's disconnection, if there is one.
    fn send(
        &self,
        request: &HttpRequest,
        vanish: Option<Vanish>,
    ) -> Result<HttpResponse, HttpFailure> {
        if vanish.is_some() {
            self.report.count(Fault::Vanish.counter());
        }
        self.http.send(request, vanish)
    }

    fn record(&self, key: String, operation: RegisterOperation) {
        self.histories.lock().entry(key).or_default().push(operation);
    }
}

fn expect_success(what: &str, answer: Result<HttpResponse, HttpFailure>) -> Result<HttpResponse> {
    match answer {
        Ok(answer) if answer.is_success() => Ok(answer),
        Ok(answer) => bail!("cannot {what}: {}", answer.summary()),
        Err(failure) => bail!("cannot {what}: {failure:?}"),
    }
}

/// One client.
#[derive(Debug)]
pub struct ChaosClient {
    world: Arc<ClientsWorld>,
    index: usize,
    own: TestThread,
    receipts: Vec<(String, Value)>,
    own_state: own_state::OwnState,
}

impl ChaosClient {
    /// Creates a client with a new thread.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn new(world: Arc<ClientsWorld>, index: usize) -> Result<ChaosClient> {
        let own = world.create_thread(&format!("own-{index}"))?;
        let own_state = own_state::OwnState::default();
        Ok(ChaosClient { world, index, own, receipts: Vec::new(), own_state })
    }

    /// Executes the plan until `ended`.
    pub fn run(&mut self, seed: u64, vanishing: bool, ended: &AtomicBool) {
        for index in 0.. {
            if ended.load(Ordering::Relaxed) {
                break;
            }
            let step = plan::step(seed, self.index, index, vanishing);
            self.step(&step);
            std::thread::sleep(step.pause);
        }
    }

    fn step(&mut self, step: &PlannedStep) {
        let word = format!("{:?}", step.action);
        let word = word.split([' ', '{']).next().unwrap_or_default().to_owned();
        self.world.report.count(format!("operation {word}"));
        match step.action {
            PlannedAction::WriteVariable { thread, variable, by } => {
                self.write_variable(step, thread, variable, by);
            }
            PlannedAction::ReadVariable { thread, variable, by } => {
                self.read_variable(step, thread, variable, by);
            }
            PlannedAction::WriteFile { file, length } => self.write_file(step, file, length),
            PlannedAction::ReadFile { file } => self.read_file(file),
            PlannedAction::AddVersion => self.add_version(step),
            PlannedAction::Rollback => self.rollback(step),
            PlannedAction::ReadVersion => self.read_version(step.choice),
            PlannedAction::Fork => self.fork(step),
            PlannedAction::Stream { lines } => self.stream(step, lines),
            PlannedAction::Feed { lines } => self.feed(step, lines),
            PlannedAction::Type => self.type_line(step),
            PlannedAction::Message => self.message(step),
            PlannedAction::TemporaryThread { shared } => self.temporary_thread(step, shared),
            PlannedAction::ReadReceipt => self.read_receipt(step.choice),
            PlannedAction::Share => self.share(step),
            PlannedAction::Pause => self.pause(step),
        }
    }

    /// Counts an answer, and reports one that must never occur.
    fn observe(&self, what: &str, answer: &Result<HttpResponse, HttpFailure>) {
        let report = &self.world.report;
        match answer {
            Ok(answer) => {
                report.count(format!("answer {}", answer.status));
                if answer.status == 500 {
                    report.violation("internal error", what, answer.summary());
                }
            }
            Err(failure) => {
                report.count(format!("answer {failure:?}"));
                if *failure == HttpFailure::Unanswered {
                    let timeout = self.world.http.timeout;
                    report.violation("unanswered", what, format!("no answer within {timeout:?}"));
                }
            }
        }
    }

    fn get(&self, target: &str) -> Result<HttpResponse, HttpFailure> {
        let answer = self.world.http.get(target);
        self.observe(&format!("GET {target}"), &answer);
        answer
    }

    /// Repeats a GET until the answer is not a 5xx; returns `None` after two minutes.
    fn get_with_retries(&self, target: &str) -> Option<HttpResponse> {
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        while Instant::now() < deadline {
            match self.get(target) {
                Ok(answer) if answer.status < 500 => return Some(answer),
                Ok(_) | Err(_) => std::thread::sleep(RETRY_INTERVAL),
            }
        }
        self.world.report.violation("unavailable", target, "nothing but 5xx for two minutes");
        None
    }

    /// Runs a command to its end.
    fn exec(&mut self, target: &str, body: &Value, step: &PlannedStep) -> Ran {
        match self.start(target, body, step) {
            Ran::Ended(receipt) => self.follow(receipt),
            other => other,
        }
    }

    /// Sends an exec; the receipt may be that of a command that still runs.
    fn start(&self, target: &str, body: &Value, step: &PlannedStep) -> Ran {
        let key = step.keyed.then(|| format!("chaos-{}", plan::name(step.id)));
        let request = HttpRequest::new("POST", target).json(body).key(key);
        let mut vanish = step.vanish;
        let mut received = false;
        for _ in 0..MAX_ATTEMPTS {
            let answer = self.world.send(&request, vanish.take());
            self.observe(&format!("POST {target} {body}"), &answer);
            match answer {
                Ok(answer) if answer.status == 200 => return Ran::Ended(answer.json()),
                Ok(answer) if answer.json()["code"] == "in_flight" => {}
                Ok(answer) if answer.json()["code"] == "outcome_unknown" => return Ran::Unknown,
                Ok(answer) if answer.status < 500 => {
                    self.unexpected(target, &answer);
                    return if received { Ran::Unknown } else { Ran::Refused };
                }
                Ok(_) | Err(HttpFailure::Broken | HttpFailure::Unanswered) => received = true,
                Err(HttpFailure::NotSent) => {}
            }
            if !step.keyed {
                break;
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
        if received { Ran::Unknown } else { Ran::Refused }
    }

    /// Reports the refusal of a request on a resource that exists and was not deleted.
    fn unexpected(&self, target: &str, answer: &HttpResponse) {
        let code = answer.json()["code"].as_str().unwrap_or_default().to_owned();
        self.world.report.count(format!("refusal {} {code}", answer.status));
        if matches!(answer.status, 400..=404 | 410 | 422) {
            self.world.report.violation("lost or refused", target, answer.summary());
        }
    }

    /// Waits for the end of a command and keeps its receipt.
    fn follow(&mut self, mut receipt: Value) -> Ran {
        let Some(id) = receipt["command_id"].as_str().map(str::to_owned) else {
            self.world.report.violation("receipt", "exec", format!("no command id in {receipt}"));
            return Ran::Unknown;
        };
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        while receipt["status"] == "running" {
            if Instant::now() > deadline {
                let detail = format!("still running after {COMMAND_TIMEOUT:?}: {receipt}");
                self.world.report.violation("endless command", id, detail);
                return Ran::Unknown;
            }
            std::thread::sleep(RETRY_INTERVAL / 3);
            match self.get(&format!("/api/commands/{id}")) {
                Ok(answer) if answer.status == 200 => receipt = answer.json(),
                Ok(answer) if answer.status < 500 => {
                    self.unexpected(&format!("/api/commands/{id}"), &answer);
                    return Ran::Unknown;
                }
                Ok(_) | Err(_) => {}
            }
        }
        let status = receipt["status"].as_str().unwrap_or_default().to_owned();
        self.world.report.count(format!("command {status}"));
        if self.receipts.len() < MAX_RECEIPTS && self.stays(&receipt) {
            self.receipts.push((id, receipt.clone()));
        }
        match status.as_str() {
            "lost" => Ran::Unknown,
            "not_started" => Ran::Refused,
            _ => Ran::Ended(receipt),
        }
    }

    /// Returns whether a command's terminal exists until the end of the run; receipts are deleted with their terminal.
    fn stays(&self, receipt: &Value) -> bool {
        let terminal = receipt["terminal_id"].as_str().unwrap_or_default();
        self.own.terminal == terminal
            || self.world.registers.iter().any(|register| register.terminal == terminal)
    }

    fn write_variable(&mut self, step: &PlannedStep, thread: usize, variable: usize, by: WriteBy) {
        let world = self.world.clone();
        let (register, name) = (&world.registers[thread], plan::name(step.id));
        let variable = VARIABLES[variable];
        let invoked = world.report.tick();
        let outcome = if by == WriteBy::Patch {
            let target = format!("/api/terminals/{}/env", register.terminal);
            let body = json!({"set": {variable: name}});
            self.change(&HttpRequest::new("PATCH", target).json(&body), step)
        } else {
            let effects = plan::file("effects", thread);
            // The mark at the end tells a name from one that a full disk cut.
            let write = format!("export {variable}={name}; printf '\\n%s;\\n' {name} >>{effects}");
            let body = match by {
                WriteBy::YieldingExec => {
                    json!({"command": format!("sleep 0.02; {write}"), "timeout_ms": 30_000, "yield_ms": 1})
                }
                WriteBy::TimedOutExec => {
                    json!({"command": format!("{write}; sleep 60"), "timeout_ms": 200})
                }
                WriteBy::Exec | WriteBy::Patch => json!({"command": write, "timeout_ms": 30_000}),
            };
            let ran = self.exec(&format!("/api/threads/{}/exec", register.name), &body, step);
            let (outcome, effect) = match &ran {
                // A timeout rolls the shell's state back, but not side effects outside the shell.
                Ran::Ended(receipt) if receipt["status"] != "finished" => {
                    (WriteOutcome::Refused, Expected::AtMostOnce)
                }
                Ran::Ended(receipt) if receipt["exit_code"] == 0 => {
                    (WriteOutcome::Done, Expected::Once)
                }
                Ran::Ended(receipt) if receipt["shell_restarted"] == true => {
                    (WriteOutcome::Unknown, Expected::AtMostOnce)
                }
                Ran::Ended(_) => (WriteOutcome::Done, Expected::AtMostOnce),
                Ran::Refused => (WriteOutcome::Refused, Expected::Never),
                Ran::Unknown => (WriteOutcome::Unknown, Expected::AtMostOnce),
            };
            world.effects[thread].lock().expect(step.id, effect);
            outcome
        };
        let action = register::RegisterAction::Write(step.id, outcome);
        let returned = world.report.tick();
        let how = match by {
            WriteBy::Exec => "exec",
            WriteBy::YieldingExec => "exec with yield_ms",
            WriteBy::Patch => "PATCH env",
            WriteBy::TimedOutExec => "exec beyond its timeout",
        };
        let operation = RegisterOperation { client: self.index, invoked, returned, action, how };
        world.record(format!("{} ${variable}", register.name), operation);
    }

    /// Sends a changing request without an idempotency key.
    fn change(&self, request: &HttpRequest, step: &PlannedStep) -> WriteOutcome {
        let answer = self.world.send(request, step.vanish);
        self.observe(&request.describe(), &answer);
        match answer {
            Ok(answer) if answer.is_success() => WriteOutcome::Done,
            Ok(answer) if answer.status < 500 => {
                self.unexpected(&request.describe(), &answer);
                WriteOutcome::Refused
            }
            Ok(_) | Err(HttpFailure::Broken | HttpFailure::Unanswered) => WriteOutcome::Unknown,
            Err(HttpFailure::NotSent) => WriteOutcome::Refused,
        }
    }

    fn read_variable(&mut self, step: &PlannedStep, thread: usize, variable: usize, by: ReadBy) {
        let world = self.world.clone();
        let register = &world.registers[thread];
        let variable = VARIABLES[variable];
        let key = format!("{} ${variable}", register.name);
        let invoked = world.report.tick();
        let text = match by {
            ReadBy::Exec => {
                // The brackets distinguish an empty variable from lost output.
                let command = format!("printf '<%s>' \"${variable}\"");
                let body = json!({"command": command, "timeout_ms": 30_000});
                let target = format!("/api/threads/{}/exec", register.name);
                match self.exec(&target, &body, step) {
                    Ran::Ended(receipt) if receipt["exit_code"] == 0 => {
                        let text = receipt["stdout"].as_str().unwrap_or_default();
                        let inner = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
                        match inner {
                            Some(inner) => inner.to_owned(),
                            None => {
                                let detail = format!("of {command}: {receipt}");
                                return world.report.violation("output lost", key, detail);
                            }
                        }
                    }
                    Ran::Ended(_) | Ran::Refused | Ran::Unknown => return,
                }
            }
            ReadBy::State => match self.get(&format!("/api/terminals/{}", register.terminal)) {
                Ok(answer) if answer.status == 200 => {
                    answer.json()["env_delta"][variable].as_str().unwrap_or_default().to_owned()
                }
                Ok(answer) => return self.unexpected(&key, &answer),
                Err(_) => return,
            },
        };
        let returned = world.report.tick();
        let value = if text.is_empty() { Some(INITIAL) } else { plan::parse_name(&text) };
        let Some(value) = value else {
            return world.report.violation("register", key, format!("reads {text:?}"));
        };
        let action = register::RegisterAction::Read(value);
        let how = match by {
            ReadBy::Exec => "exec",
            ReadBy::State => "GET",
        };
        world.record(key, RegisterOperation { client: self.index, invoked, returned, action, how });
    }

    fn file_target(&self, operation: &str, file: usize) -> String {
        format!("/api/threads/{}/fs/{operation}?path={}", self.world.registers[0].name, FILES[file])
    }

    fn write_file(&self, step: &PlannedStep, file: usize, length: usize) {
        let content = file_content(step.id, length);
        let request = HttpRequest::new("PUT", self.file_target("write", file)).body(content);
        let invoked = self.world.report.tick();
        let outcome = self.change(&request, step);
        let returned = self.world.report.tick();
        let action = register::RegisterAction::Write(step.id, outcome);
        let operation =
            RegisterOperation { client: self.index, invoked, returned, action, how: "file" };
        self.world.record(FILES[file].to_owned(), operation);
    }

    fn read_file(&self, file: usize) {
        let invoked = self.world.report.tick();
        let Ok(answer) = self.get(&self.file_target("read", file)) else { return };
        let returned = self.world.report.tick();
        let value = match answer.status {
            404 => INITIAL,
            200 => match parse_file(&answer.body) {
                Some(value) => value,
                None => {
                    return self.world.report.violation("torn file", FILES[file], answer.summary());
                }
            },
            _ => return,
        };
        let action = register::RegisterAction::Read(value);
        let operation =
            RegisterOperation { client: self.index, invoked, returned, action, how: "file" };
        self.world.record(FILES[file].to_owned(), operation);
    }

    fn read_receipt(&self, choice: u64) {
        if self.receipts.is_empty() {
            return;
        }
        let (id, first) = &self.receipts[choice as usize % self.receipts.len()];
        if let Ok(answer) = self.get(&format!("/api/commands/{id}")) {
            self.compare_receipt(id, first, &answer);
        }
    }

    fn compare_receipt(&self, id: &str, first: &Value, answer: &HttpResponse) {
        if answer.status >= 500 {
            return;
        }
        if answer.status != 200 {
            return self.unexpected(&format!("/api/commands/{id}"), answer);
        }
        let receipt = answer.json();
        for field in FINAL_FIELDS {
            // On a full disk, less was read at first than could be stored later.
            let grew = first["truncated"] == true
                && matches!((receipt[field].as_str(), first[field].as_str()),
                    (Some(now), Some(before)) if now.starts_with(before));
            if receipt[field] != first[field] && !grew {
                let detail = format!("{field} was {} and is {}", first[field], receipt[field]);
                let detail = format!("{detail}; first {first}");
                self.world.report.violation("receipt changed", id, detail);
            }
        }
    }

    /// Reads and compares everything once more, after the last fault.
    pub fn verify(&mut self) {
        for (id, first) in &self.receipts {
            if let Some(answer) = self.get_with_retries(&format!("/api/commands/{id}")) {
                self.compare_receipt(id, first, &answer);
            }
        }
        self.verify_own();
        if self.index == 0 {
            self.verify_shared();
        }
    }

    fn verify_shared(&mut self) {
        // The ids of these steps are beyond those of every plan.
        let mut index = 1 << 31;
        let mut step = || {
            index += 1;
            let mut step = plan::step(0, self.index, index, false);
            step.keyed = true;
            step
        };
        let steps: Vec<PlannedStep> =
            (0..VARIABLES.len() * self.world.registers.len()).map(|_| step()).collect();
        for (position, step) in steps.iter().enumerate() {
            let (thread, variable) = (position / VARIABLES.len(), position % VARIABLES.len());
            self.read_variable(step, thread, variable, ReadBy::State);
            self.read_variable(step, thread, variable, ReadBy::Exec);
        }
        for file in 0..FILES.len() {
            self.read_file(file);
        }
        for thread in 0..self.world.registers.len() {
            let file = plan::file("effects", thread);
            let found = self.names_in(&self.world.registers[thread].name, &file, ";");
            for difference in self.world.effects[thread].lock().compare(&found) {
                let key = &self.world.registers[thread].name;
                self.world.report.violation("side effect", key, difference);
            }
        }
        for register in self.world.registers.clone() {
            self.verify_versions(&register.terminal);
        }
    }

    /// Returns the names in a file of a thread's workspace, which are separated by whitespace and end with a mark.
    fn names_in(&self, thread: &str, file: &str, mark: &str) -> Vec<u64> {
        let text = match self.world.workspace {
            FileAccess::Shared => {
                let target = format!("/api/threads/{thread}/fs/read?path=/workspace/{file}");
                let answer = self.get_with_retries(&target).filter(|answer| answer.status == 200);
                answer.map(|answer| String::from_utf8_lossy(&answer.body).into_owned())
            }
            FileAccess::InSandbox => self.print_file(thread, file),
        };
        let text = text.unwrap_or_default();
        let names = text.split_whitespace().filter_map(|word| word.strip_suffix(mark));
        names.filter_map(plan::parse_name).collect()
    }

    /// Prints a file of a sandbox that the file API does not reach.
    fn print_file(&self, thread: &str, file: &str) -> Option<String> {
        let body = json!({"command": format!("cat {file}"), "timeout_ms": 30_000});
        let request = HttpRequest::new("POST", format!("/api/threads/{thread}/exec")).json(&body);
        (0..MAX_ATTEMPTS).find_map(|_| {
            let answer = self.world.http.send(&request, None).ok()?;
            let receipt = answer.is_success().then(|| answer.json())?;
            let finished = receipt["status"] == "finished";
            finished.then(|| receipt["stdout"].as_str().map(str::to_owned)).flatten()
        })
    }

    /// Checks that the versions of a terminal rise by exactly one.
    fn verify_versions(&self, terminal: &str) {
        let mut cursor = String::new();
        let mut expected: Option<u64> = None;
        loop {
            let target = format!("/api/terminals/{terminal}/versions?limit=200{cursor}");
            let Some(answer) = self.get_with_retries(&target) else { return };
            if answer.status != 200 {
                return self.unexpected(&target, &answer);
            }
            let page = answer.json();
            for item in page["items"].as_array().into_iter().flatten() {
                let version = item["version"].as_u64().unwrap_or_default();
                if expected.is_some_and(|expected| expected != version) {
                    let detail = format!("version {version} follows {expected:?} + 1");
                    return self.world.report.violation("versions", terminal, detail);
                }
                expected = version.checked_sub(1);
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return,
            }
        }
    }
}

/// Returns the content of a file that names its write and its length.
fn file_content(id: u64, length: usize) -> Vec<u8> {
    let line = format!("{} {length}\n", plan::name(id));
    let mut content = line.clone().into_bytes();
    while content.len() < line.len() + length {
        content.extend_from_slice(line.as_bytes());
    }
    content.truncate(line.len() + length);
    content
}

/// Returns the write that a file's content names, if the content is whole.
fn parse_file(content: &[u8]) -> Option<u64> {
    let line = content.split(|byte| *byte == b'\n').next()?;
    let (name, length) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let (id, length) = (plan::parse_name(name)?, length.parse().ok()?);
    (file_content(id, length) == content).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_one_wrong_byte_is_torn() {
        let id = plan::id(1, 2);
        for length in [0, 1, 500] {
            let mut content = file_content(id, length);
            assert_eq!(parse_file(&content), Some(id));
            *content.last_mut().unwrap() ^= 1;
            assert_eq!(parse_file(&content), None);
            content.pop();
            assert_eq!(parse_file(&content), None);
        }
    }
}
