//! A client that makes changes one after the other and notes at which record of the disk each was acknowledged.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::{cut::PowerCut, fuse::RecordingDisk};
use crate::{
    http::{Http, HttpFailure, HttpRequest, HttpResponse},
    plan,
    report::Report,
    rng::Rng,
};

/// How far the output of commands may lag behind stable storage.
const OUTPUT_LAG: Duration = Duration::from_secs(2);
/// Commands whose receipts are compared after a cut, the latest first.
const MAX_RECEIPTS: usize = 15;
/// The number of messages per page.
const PAGE: usize = 200;

/// A change of one key.
#[derive(Debug, Clone, Copy)]
struct KeyChange {
    value: u64,
    invoked: usize,
    acknowledged: Option<usize>,
}

/// A command that was acknowledged as finished.
#[derive(Debug, Clone)]
struct AcknowledgedCommand {
    id: String,
    receipt: Value,
    acknowledged: usize,
    at: Instant,
}

/// One client and its acknowledged changes.
#[derive(Debug)]
pub struct Witness {
    index: usize,
    http: Http,
    thread: String,
    terminal: String,
    project: String,
    keys: BTreeMap<&'static str, Vec<KeyChange>>,
    messages: Vec<KeyChange>,
    commands: Vec<AcknowledgedCommand>,
    /// Threads that were created (at a record) and deleted (at a record).
    deleted: Vec<(String, usize)>,
}

const FILES: [&str; 3] = ["/workspace", "/memories/hot", "/memories/persistent"];

impl Witness {
    /// Creates a witness with a new thread.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn create(index: usize, http: Http, project: &str) -> Result<Witness> {
        let thread = format!("power-{index}");
        let request = HttpRequest::new("PUT", format!("/api/threads/{thread}"));
        let created = http.send(&request.json(&json!({"project_id": project})), None);
        let created = success(created).context("cannot create a thread")?;
        let terminal = created.json()["sandbox"]["terminal_id"].as_str().map(str::to_owned);
        let terminal = terminal.context("a new thread has no terminal")?;
        let request = HttpRequest::new("POST", format!("/api/threads/{thread}/exec"));
        success(http.send(&request.json(&json!({"command": "true"})), None))?;
        Ok(Witness {
            index,
            http,
            thread,
            terminal,
            project: project.to_owned(),
            keys: BTreeMap::new(),
            messages: Vec::new(),
            commands: Vec::new(),
            deleted: Vec::new(),
        })
    }

    /// Returns how many facts were acknowledged.
    #[must_use]
    pub fn facts(&self) -> usize {
        self.keys.values().map(Vec::len).sum::<usize>()
            + self.messages.len()
            + self.commands.len()
            + self.deleted.len()
    }

    /// Makes changes until the deadline.
    pub fn work(&mut self, seed: u64, disk: &RecordingDisk, report: &Report, deadline: Instant) {
        for step in 1.. {
            if Instant::now() >= deadline {
                break;
            }
            let mut rng = Rng::new(seed, &[4, self.index as u64, step]);
            let value = plan::id(self.index, step);
            let invoked = disk.position();
            match rng.below(10) {
                0..3 => self.write_variable(value, invoked, disk),
                3..7 => {
                    let route = *rng.pick(&FILES);
                    let target = format!(
                        "/api/threads/{}/fs/write?path={route}/power-{}",
                        self.thread, self.index
                    );
                    let body = plan::name(value).into_bytes();
                    let answer = self.http.send(&HttpRequest::new("PUT", target).body(body), None);
                    self.changed(route, value, invoked, disk, &answer);
                }
                7..9 => {
                    let target = format!("/api/threads/{}/messages", self.thread);
                    let body = json!({"role": "user", "content": plan::name(value)});
                    let answer =
                        self.http.send(&HttpRequest::new("POST", target).json(&body), None);
                    let acknowledged = success(answer).is_ok().then(|| disk.position());
                    self.messages.push(KeyChange { value, invoked, acknowledged });
                }
                _ => self.create_and_delete(step, disk),
            }
            report.count("changes recorded");
        }
    }

    fn changed(
        &mut self,
        key: &'static str,
        value: u64,
        invoked: usize,
        disk: &RecordingDisk,
        answer: &Result<HttpResponse, HttpFailure>,
    ) {
        let done = matches!(answer, Ok(answer) if answer.is_success());
        let acknowledged = done.then(|| disk.position());
        self.keys.entry(key).or_default().push(KeyChange { value, invoked, acknowledged });
    }

    fn write_variable(&mut self, value: u64, invoked: usize, disk: &RecordingDisk) {
        let name = plan::name(value);
        let body = json!({"command": format!("export CHAOS={name}; echo {name}")});
        let target = format!("/api/threads/{}/exec", self.thread);
        let answer = self.http.send(&HttpRequest::new("POST", target).json(&body), None);
        self.changed("variable", value, invoked, disk, &answer);
        let Ok(answer) = answer else { return };
        let receipt = answer.json();
        if let (Some(id), "finished") =
            (receipt["command_id"].as_str(), receipt["status"].as_str().unwrap_or_default())
        {
            let (id, acknowledged, at) = (id.to_owned(), disk.position(), Instant::now());
            self.commands.push(AcknowledgedCommand { id, receipt, acknowledged, at });
        }
    }

    fn create_and_delete(&mut self, step: u64, disk: &RecordingDisk) {
        let name = format!("deleted-{}-{step}", self.index);
        let target = format!("/api/threads/{name}");
        let body = json!({"project_id": self.project});
        if success(self.http.send(&HttpRequest::new("PUT", &target).json(&body), None)).is_err() {
            return;
        }
        if success(self.http.send(&HttpRequest::new("DELETE", &target), None)).is_ok() {
            self.deleted.push((name, disk.position()));
        }
    }

    /// Compares the state of the server after a cut with the changes acknowledged before it.
    pub fn verify(&self, http: &Http, moment: PowerCut, report: &Report) {
        let key = |what: &str| format!("{} {what} after cut {}", self.thread, moment.index);
        let get = |target: String| match http.get(&target) {
            Ok(answer) => Some(answer),
            Err(failure) => {
                report.violation("unanswered", key(&target), format!("{failure:?}"));
                None
            }
        };
        if let Some(answer) = get(format!("/api/terminals/{}", self.terminal)) {
            let text = answer.json()["env_delta"]["CHAOS"].as_str().map(str::to_owned);
            self.expect("variable", &key("variable"), moment, text, &answer, report);
        }
        // A new shell must have the state, too; only one witness per cut, because starting a shell is slow.
        if moment.index % 4 == self.index {
            let body = json!({"command": "printf %s \"$CHAOS\"", "timeout_ms": 30_000});
            let request = HttpRequest::new("POST", format!("/api/threads/{}/exec", self.thread));
            match http.send(&request.json(&body), None) {
                Ok(answer) if answer.status == 200 => {
                    let text = answer.json()["stdout"].as_str().map(str::to_owned);
                    self.expect("variable", &key("shell"), moment, text, &answer, report);
                }
                Ok(answer) => report.violation("exec after a cut", key("shell"), answer.summary()),
                Err(failure) => {
                    report.violation("exec after a cut", key("shell"), format!("{failure:?}"));
                }
            }
        }
        for route in FILES {
            let path = format!("{route}/power-{}", self.index);
            let target = format!("/api/threads/{}/fs/read?path={path}", self.thread);
            if let Some(answer) = get(target) {
                let text = (answer.status == 200)
                    .then(|| String::from_utf8_lossy(&answer.body).into_owned());
                self.expect(route, &key(&path), moment, text, &answer, report);
            }
        }
        self.verify_messages(http, moment, report, &key("messages"));
        let before = |command: &&AcknowledgedCommand| command.acknowledged <= moment.position;
        for command in self.commands.iter().rev().filter(before).take(MAX_RECEIPTS) {
            let Some(answer) = get(format!("/api/commands/{}", command.id)) else { continue };
            let receipt = answer.json();
            let old = moment.at.saturating_duration_since(command.at) > OUTPUT_LAG;
            let output: &[&str] = if old { &["stdout", "stdout_bytes"] } else { &[] };
            for field in ["status", "exit_code", "version"].iter().chain(output) {
                if receipt[field] != command.receipt[field] {
                    let (was, is) = (&command.receipt[field], &receipt[field]);
                    let detail = format!("{} {field} was {was} and is {is}", command.id);
                    let kind = if output.contains(field) { "output" } else { "receipt" };
                    report.violation(kind, key("command"), detail);
                }
            }
            report.count("receipts compared");
        }
        for (name, _) in self.deleted.iter().rev().filter(|d| d.1 <= moment.position).take(5) {
            if let Some(answer) = get(format!("/api/threads/{name}"))
                && answer.status != 404
            {
                report.violation("deletion undone", key(name), answer.summary());
            }
            report.count("deletions compared");
        }
    }

    fn expect(
        &self,
        name: &str,
        key: &str,
        moment: PowerCut,
        text: Option<String>,
        answer: &HttpResponse,
        report: &Report,
    ) {
        let changes = self.keys.get(name).map(Vec::as_slice).unwrap_or_default();
        let found = text.as_deref().filter(|text| !text.is_empty());
        let allowed = allowed(changes, moment.position);
        if !allowed.contains(&found.map_or(0, |text| plan::parse_name(text).unwrap_or(u64::MAX))) {
            let allowed: Vec<String> = allowed.iter().map(|value| plan::name(*value)).collect();
            let detail = format!("{found:?} is not among {allowed:?}: {}", answer.summary());
            report.violation("acknowledged change lost", key, detail);
        }
        report.count(format!("{name} compared"));
    }

    fn verify_messages(&self, http: &Http, moment: PowerCut, report: &Report, key: &str) {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let target = format!("/api/threads/{}/messages?limit={PAGE}{cursor}", self.thread);
            let Ok(answer) = http.get(target) else { break };
            let page = answer.json();
            for item in page["items"].as_array().into_iter().flatten() {
                found.extend(item["content"].as_str().and_then(plan::parse_name));
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        let is_due = |c: &&KeyChange| c.acknowledged.is_some_and(|at| at <= moment.position);
        for change in self.messages.iter().filter(is_due) {
            if !found.contains(&change.value) {
                let detail = format!("{} is missing", plan::name(change.value));
                report.violation("acknowledged message lost", key, detail);
            }
        }
        report.count("message lists compared");
    }
}

/// Returns the values that a key may have after a cut: the last acknowledged one, or any that was requested later.
fn allowed(changes: &[KeyChange], cut: usize) -> Vec<u64> {
    let last = changes.iter().rposition(|c| c.acknowledged.is_some_and(|at| at <= cut));
    let mut values = vec![last.map_or(0, |index| changes[index].value)];
    let later = &changes[last.map_or(0, |index| index + 1)..];
    values.extend(later.iter().filter(|change| change.invoked <= cut).map(|change| change.value));
    values
}

fn success(answer: Result<HttpResponse, HttpFailure>) -> Result<HttpResponse> {
    match answer {
        Ok(answer) if answer.is_success() => Ok(answer),
        Ok(answer) => bail!("{}", answer.summary()),
        Err(failure) => bail!("{failure:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_cut_a_key_has_its_last_acknowledged_value_or_a_later_one() {
        let change = |value, invoked, at| KeyChange { value, invoked, acknowledged: Some(at) };
        let changes = [change(1, 0, 10), change(2, 11, 20), change(3, 21, 30)];
        assert_eq!(allowed(&changes, 5), [0, 1]);
        assert_eq!(allowed(&changes, 10), [1]);
        assert_eq!(allowed(&changes, 15), [1, 2]);
        assert_eq!(allowed(&changes, 40), [3]);
    }
}
