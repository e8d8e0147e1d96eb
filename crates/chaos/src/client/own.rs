//! Operations on the thread that only this client uses: versions, forks, output by offset, input, messages, deletion.

use std::time::Instant;

use serde_json::{Value, json};

use super::{
    COMMAND_TIMEOUT, ChaosClient, MAX_ATTEMPTS, RETRY_INTERVAL, Ran, own_state::OutputStream,
};
use crate::{
    http::{HttpFailure, HttpRequest, HttpResponse},
    ledger::{Expected, Ledger},
    plan::{self, PlannedStep},
    register::WriteOutcome,
};

/// The variable whose versions are checked.
const VARIABLE: &str = "CHAOS_VERSION";
/// Streams that are read again at the end.
const MAX_STREAMS: usize = 20;

impl ChaosClient {
    fn exec_own(&mut self, body: &Value, step: &PlannedStep) -> Ran {
        let target = format!("/api/terminals/{}/exec", self.own.terminal);
        self.exec(&target, body, step)
    }

    pub(super) fn add_version(&mut self, step: &PlannedStep) {
        let command = format!("export {VARIABLE}={}", plan::name(step.id));
        match self.exec_own(&json!({"command": command, "timeout_ms": 30_000}), step) {
            Ran::Ended(receipt) if receipt["status"] == "finished" && receipt["exit_code"] == 0 => {
                self.acknowledge_version(&receipt, step.id);
            }
            Ran::Ended(_) | Ran::Unknown => {
                self.own_state.unsettled.insert(step.id);
            }
            Ran::Refused => {}
        }
    }

    fn acknowledge_version(&mut self, state: &Value, value: u64) {
        let Some(version) = state["version"].as_u64() else { return };
        let last = self.own_state.versions.last_key_value().map_or(0, |(version, _)| *version);
        if version <= last {
            let detail = format!("version {version} was acknowledged after {last}: {state}");
            self.world.report.violation("versions", &self.own.name, detail);
        }
        self.own_state.versions.insert(version, value);
        self.own_state.origins.insert(version, state.to_string());
    }

    fn known_version(&self, choice: u64) -> Option<(u64, u64)> {
        let versions = &self.own_state.versions;
        let index = choice as usize % versions.len().max(1);
        versions.iter().nth(index).map(|(version, value)| (*version, *value))
    }

    pub(super) fn read_version(&self, choice: u64) {
        let Some((version, value)) = self.known_version(choice) else { return };
        let target = format!("/api/terminals/{}/versions/{version}", self.own.terminal);
        let Ok(answer) = self.get(&target) else { return };
        self.compare_version(&target, version, value, &answer);
    }

    fn compare_version(&self, target: &str, version: u64, value: u64, answer: &HttpResponse) {
        match answer.status {
            200 => {
                let origin = self.own_state.origins.get(&version).map_or("", String::as_str);
                let seen = answer.json()["env"][VARIABLE].as_str().map(str::to_owned);
                self.expect_value(&format!("{target}, from {origin}"), value, seen.as_deref());
            }
            // Old versions may be dropped, which the answer reports.
            410 | 500.. => {}
            _ => self.unexpected(target, answer),
        }
    }

    fn expect_value(&self, what: &str, value: u64, seen: Option<&str>) {
        let seen_id = seen.and_then(plan::parse_name);
        if seen_id != Some(value) {
            let detail = format!("expected {}, found {seen:?}", plan::name(value));
            self.world.report.violation("version content", what, detail);
        }
    }

    pub(super) fn rollback(&mut self, step: &PlannedStep) {
        let Some((version, value)) = self.known_version(step.choice) else { return };
        let target = format!("/api/terminals/{}/rollback", self.own.terminal);
        let request = HttpRequest::new("POST", &target).json(&json!({"version": version}));
        let answer = self.world.send(&request, step.vanish);
        self.observe(&target, &answer);
        match answer {
            Ok(answer) if answer.status == 200 => {
                let state = answer.json();
                self.acknowledge_version(&state, value);
                if self.own_state.unsettled.is_empty() {
                    let seen = state["env_delta"][VARIABLE].as_str();
                    self.expect_value(&format!("{target} to {version}"), value, seen);
                }
                self.expect_in_shell(&self.own.terminal.clone(), value, step);
            }
            Ok(answer) if answer.status < 500 => self.unexpected(&target, &answer),
            Ok(_) | Err(HttpFailure::Broken | HttpFailure::Unanswered) => {
                self.own_state.unsettled.insert(value);
            }
            Err(HttpFailure::NotSent) => {}
        }
    }

    /// Prints the variable in a live shell.
    fn expect_in_shell(&mut self, terminal: &str, value: u64, step: &PlannedStep) {
        let body = json!({"command": format!("printf %s \"${VARIABLE}\""), "timeout_ms": 30_000});
        let calm = PlannedStep { vanish: None, keyed: false, ..step.clone() };
        let target = format!("/api/terminals/{terminal}/exec");
        let Ran::Ended(receipt) = self.exec(&target, &body, &calm) else { return };
        if receipt["status"] != "finished" || receipt["exit_code"] != 0 {
            return;
        }
        let seen = receipt["stdout"].as_str().unwrap_or_default();
        let unsettled =
            plan::parse_name(seen).is_some_and(|id| self.own_state.unsettled.contains(&id));
        if !unsettled {
            self.expect_value(&format!("shell of {terminal} ({receipt})"), value, Some(seen));
        }
    }

    pub(super) fn fork(&mut self, step: &PlannedStep) {
        let Some((version, value)) = self.known_version(step.choice) else { return };
        let target = format!("/api/terminals/{}/fork", self.own.terminal);
        let request = HttpRequest::new("POST", &target).json(&json!({"version": version}));
        let answer = self.world.send(&request, step.vanish);
        self.observe(&target, &answer);
        let Ok(answer) = answer else { return };
        if answer.status != 201 {
            return self.unexpected(&target, &answer);
        }
        let fork = answer.json();
        self.expect_value(
            &format!("fork at {version}"),
            value,
            fork["env_delta"][VARIABLE].as_str(),
        );
        let Some(terminal) = fork["terminal_id"].as_str() else { return };
        self.expect_in_shell(terminal, value, step);
        self.delete(&format!("/api/terminals/{terminal}"), step);
    }

    /// Deletes a resource, which must disappear for good soon after the acknowledgement.
    fn delete(&self, target: &str, step: &PlannedStep) {
        let answer = self.world.send(&HttpRequest::new("DELETE", target), step.vanish);
        self.observe(&format!("DELETE {target}"), &answer);
        match answer {
            Ok(answer) if answer.is_success() => {}
            Ok(answer) if answer.status < 500 => return self.unexpected(target, &answer),
            Ok(_) | Err(_) => return,
        }
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        while Instant::now() < deadline {
            if matches!(self.get(target), Ok(answer) if answer.status == 404) {
                return;
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
        self.world.report.violation("deletion", target, "it still exists two minutes later");
    }

    pub(super) fn stream(&mut self, step: &PlannedStep, lines: u64) {
        let name = plan::name(step.id);
        let command = format!("i=0; while [ $i -lt {lines} ]; do echo {name} $i; i=$((i+1)); done");
        let body = json!({"command": command, "timeout_ms": 60_000, "yield_ms": 5});
        let target = format!("/api/terminals/{}/exec", self.own.terminal);
        let Ran::Ended(receipt) = self.start(&target, &body, step) else { return };
        let Some(command) = receipt["command_id"].as_str().map(str::to_owned) else { return };
        let expected: String = (0..lines).map(|line| format!("{name} {line}\n")).collect();
        let expected = expected.into_bytes();
        let mut stream = OutputStream { command, expected, received: 0, next: 0, finished: false };
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        while Instant::now() < deadline {
            let target = format!("/api/commands/{}/output", stream.command);
            let from = format!("{target}?from={}&limit=7000&wait_ms=500", stream.next);
            match self.get(&from) {
                Ok(answer) if answer.status == 200 => {
                    self.compare_output(&mut stream, &answer);
                    if answer.header("x-end") == Some("true") {
                        break;
                    }
                }
                Ok(answer) if answer.status < 500 => return self.unexpected(&from, &answer),
                Ok(_) | Err(_) => std::thread::sleep(RETRY_INTERVAL),
            }
        }
        let Ran::Ended(receipt) = self.follow(receipt) else { return };
        stream.finished = receipt["status"] == "finished" && receipt["exit_code"] == 0;
        self.compare_whole_output(&mut stream);
        if self.own_state.streams.len() < MAX_STREAMS {
            self.own_state.streams.push(stream);
        }
    }

    fn compare_output(&self, stream: &mut OutputStream, answer: &HttpResponse) {
        let number = |name| answer.header(name).and_then(|text| text.parse::<usize>().ok());
        let (Some(offset), Some(next)) = (number("x-offset"), number("x-next-offset")) else {
            return self.world.report.violation("output", &stream.command, "no offsets");
        };
        let end = offset + answer.body.len();
        if stream.expected.get(offset..end) != Some(&answer.body[..]) || next < end {
            let detail =
                format!("other bytes at {offset} to {end}, next {next}: {}", answer.summary());
            self.world.report.violation("output", &stream.command, detail);
        }
        if !answer.body.is_empty() {
            stream.received = stream.received.max(end);
        }
        stream.next = next;
    }

    /// Reads all output again: it must contain everything received before, and be complete if the command finished.
    fn compare_whole_output(&self, stream: &mut OutputStream) {
        let target = format!("/api/commands/{}/output?from=0&limit=8000000", stream.command);
        let Some(answer) = self.get_with_retries(&target) else { return };
        if answer.status != 200 {
            return self.unexpected(&target, &answer);
        }
        let before = stream.received;
        self.compare_output(stream, &answer);
        let length = answer.body.len();
        let complete = length == stream.expected.len() || self.is_cut(stream, length);
        if length < before || (stream.finished && !complete) {
            let detail = format!(
                "{length} bytes, {before} were received before, {} were printed, finished: {}",
                stream.expected.len(),
                stream.finished
            );
            self.world.report.violation("output lost", &stream.command, detail);
        }
    }

    /// Returns whether a full disk kept no bytes from `length` on, and the answer says so.
    fn is_cut(&self, stream: &OutputStream, length: usize) -> bool {
        let target = format!("/api/commands/{}/output?from={length}", stream.command);
        let answer = if self.world.disk_fills { self.get_with_retries(&target) } else { None };
        answer.is_some_and(|answer| {
            let skipped = answer.header("x-offset") == Some(&stream.expected.len().to_string());
            skipped && answer.header("x-end") == Some("true")
        })
    }

    pub(super) fn feed(&mut self, step: &PlannedStep, lines: u64) {
        let path = plan::file("fed", plan::name(step.id));
        let body = json!({"command": format!("cat >>{path}"), "timeout_ms": 90_000, "yield_ms": 5});
        let target = format!("/api/terminals/{}/exec", self.own.terminal);
        let Ran::Ended(receipt) = self.start(&target, &body, step) else { return };
        let Some(command) = receipt["command_id"].as_str().map(str::to_owned) else { return };
        let target = format!("/api/commands/{command}/stdin");
        let mut ledger = Ledger::default();
        for line in 0..lines {
            // The lines of a feed are named by a client number beyond all others.
            let id = plan::id(1000 + self.index, line);
            let name = plan::name(id);
            let body =
                json!({"data": format!("{name}\n"), "write_id": format!("{command}-{name}")});
            let times = 1 + (step.choice >> (line % 60)) % 2;
            let mut expected = Expected::Never;
            for _ in 0..times {
                let sent = self.write_once(&target, &body);
                expected = match (expected, sent) {
                    (Expected::Once, _) | (_, WriteOutcome::Done) => Expected::Once,
                    (Expected::Never, WriteOutcome::Refused) => Expected::Never,
                    _ => Expected::AtMostOnce,
                };
            }
            ledger.expect(id, expected);
        }
        let eof =
            self.write_once(&target, &json!({"eof": true, "write_id": format!("{command}-eof")}));
        if eof != WriteOutcome::Done {
            let cancel = HttpRequest::new("POST", format!("/api/commands/{command}/cancel"));
            let _ = self.world.http.send(&cancel, None);
        }
        let Ran::Ended(receipt) = self.follow(receipt) else { return };
        if receipt["status"] != "finished" || receipt["exit_code"] != 0 {
            return;
        }
        let found = self.names_in(&self.own.name, &path, "");
        for difference in ledger.compare(&found) {
            let detail = format!("{difference}; eof {eof:?}, receipt {receipt}");
            self.world.report.violation("fed input", &command, detail);
        }
    }

    /// Sends input with a `write_id` until the outcome is known.
    fn write_once(&self, target: &str, body: &Value) -> WriteOutcome {
        let request = HttpRequest::new("POST", target).json(body);
        let mut outcome = WriteOutcome::Refused;
        for _ in 0..MAX_ATTEMPTS {
            let answer = self.world.http.send(&request, None);
            self.observe(&format!("POST {target} {body}"), &answer);
            match answer {
                Ok(answer) if answer.is_success() => return WriteOutcome::Done,
                Ok(answer) if answer.json()["code"] == "outcome_unknown" => {
                    return WriteOutcome::Unknown;
                }
                Ok(answer) if answer.status < 500 => {
                    let code = answer.json()["code"].as_str().unwrap_or_default().to_owned();
                    self.world.report.count(format!("refusal {} {code}", answer.status));
                    return outcome;
                }
                Ok(_) | Err(HttpFailure::Broken | HttpFailure::Unanswered) => {
                    outcome = WriteOutcome::Unknown
                }
                Err(HttpFailure::NotSent) => {}
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
        outcome
    }

    pub(super) fn type_line(&mut self, step: &PlannedStep) {
        if self.own_state.pty.is_none() {
            let program = format!("stty -echo; exec cat >>{}", plan::file("typed", self.index));
            let target = format!("/api/threads/{}/terminals", self.own.name);
            let request =
                HttpRequest::new("POST", &target).json(&json!({"cmd": ["sh", "-c", program]}));
            let answer = self.world.http.send(&request, None);
            self.observe(&target, &answer);
            let Ok(answer) = answer else { return };
            self.own_state.pty = answer.json()["terminal_id"].as_str().map(str::to_owned);
        }
        let Some(pty) = self.own_state.pty.clone() else { return };
        let name = plan::name(step.id);
        let body = json!({"data": format!("{name}\n"), "write_id": name});
        let target = format!("/api/terminals/{pty}/input");
        let outcome = self.write_once(&target, &body);
        let again =
            step.choice.is_multiple_of(3) && self.write_once(&target, &body) == WriteOutcome::Done;
        let expected = match outcome {
            // A program that is killed or cannot write its file loses the lines that it has not written.
            WriteOutcome::Done if !self.world.programs_die => Expected::Once,
            WriteOutcome::Refused if !again => Expected::Never,
            WriteOutcome::Done | WriteOutcome::Refused | WriteOutcome::Unknown => {
                Expected::AtMostOnce
            }
        };
        self.own_state.typed.expect(step.id, expected);
        if outcome != WriteOutcome::Done {
            self.own_state.pty = None;
        }
    }

    pub(super) fn message(&mut self, step: &PlannedStep) {
        let target = format!("/api/threads/{}/messages", self.own.name);
        let name = plan::name(step.id);
        let key = step.keyed.then(|| format!("message-{name}"));
        let body = json!({"role": "user", "content": name});
        let request = HttpRequest::new("POST", target).json(&body).key(key);
        let mut outcome = self.change(&request, step);
        let calm = PlannedStep { vanish: None, ..step.clone() };
        for _ in 0..MAX_ATTEMPTS {
            if !step.keyed || outcome != WriteOutcome::Unknown {
                break;
            }
            std::thread::sleep(RETRY_INTERVAL);
            // A refusal leaves the outcome of the first attempt open.
            if self.change(&request, &calm) == WriteOutcome::Done {
                outcome = WriteOutcome::Done;
            }
        }
        let expected = match outcome {
            WriteOutcome::Done => Expected::Once,
            WriteOutcome::Refused => Expected::Never,
            WriteOutcome::Unknown => Expected::AtMostOnce,
        };
        self.own_state.messages.expect(step.id, expected);
    }

    pub(super) fn temporary_thread(&mut self, step: &PlannedStep, shared: bool) {
        self.own_state.temporary += 1;
        let name = format!("temporary-{}-{}", self.index, self.own_state.temporary);
        let put = |name: &str, body: Value| {
            let request = HttpRequest::new("PUT", format!("/api/threads/{name}")).json(&body);
            let answer = self.world.http.send(&request, None);
            self.observe(&format!("PUT thread {name} {body}"), &answer);
            answer.ok().filter(HttpResponse::is_success)
        };
        let Some(created) = put(&name, json!({"project_id": self.world.project})) else { return };
        let mut second = None;
        if shared {
            let lease = created.json()["sandbox"]["lease_id"].clone();
            let other = format!("{name}-shared");
            let body = json!({"project_id": self.world.project, "lease_id": lease});
            second = put(&other, body).map(|_| other);
        }
        let body = json!({"command": "sleep 100000 & echo started", "timeout_ms": 30_000});
        let calm = PlannedStep { vanish: None, keyed: false, ..step.clone() };
        for thread in [Some(&name), second.as_ref()].into_iter().flatten() {
            let _ = self.exec(&format!("/api/threads/{thread}/exec"), &body, &calm);
        }
        self.delete(&format!("/api/threads/{name}"), step);
        if let Some(second) = second {
            self.delete(&format!("/api/threads/{second}"), &calm);
        }
    }

    pub(super) fn share(&mut self, step: &PlannedStep) {
        let target = format!("/api/terminals/{}/shares", self.own.terminal);
        let request = HttpRequest::new("POST", &target).json(&json!({"name": plan::name(step.id)}));
        let answer = self.world.send(&request, step.vanish);
        self.observe(&target, &answer);
        let Ok(answer) = answer else { return };
        if answer.status != 201 {
            return self.unexpected(&target, &answer);
        }
        let share = answer.json();
        let Some(id) = share["share_id"].as_str().map(str::to_owned) else { return };
        let secret = share["url"].as_str().and_then(|url| url.split_once('#')).map(|(_, it)| it);
        let open = HttpRequest::new("POST", "/api/shares/open").json(&json!({"secret": secret}));
        let opened = self.world.http.send(&open, None);
        self.observe("open a share link", &opened);
        if let Ok(answer) = opened
            && answer.status < 500
            && answer.status != 200
        {
            self.world.report.violation("share", &id, answer.summary());
        }
        self.own_state.shares.insert(id.clone(), "active");
        if step.choice.is_multiple_of(2) {
            return;
        }
        let target = format!("/api/shares/{id}");
        match self.change(&HttpRequest::new("DELETE", target), step) {
            WriteOutcome::Done => self.own_state.shares.insert(id, "revoked"),
            WriteOutcome::Unknown => self.own_state.shares.remove(&id),
            WriteOutcome::Refused => None,
        };
    }

    fn verify_shares(&self) {
        let target = format!("/api/terminals/{}/shares?limit=200", self.own.terminal);
        let Some(answer) = self.get_with_retries(&target) else { return };
        let listed = answer.json();
        let listed = listed["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (id, expected) in &self.own_state.shares {
            let found = listed.iter().find(|share| share["share_id"] == **id);
            let status = found.map_or("missing", |share| share["status"].as_str().unwrap_or(""));
            if status != *expected {
                let detail = format!("it is {status} and was acknowledged as {expected}");
                self.world.report.violation("share", id, detail);
            }
        }
    }

    pub(super) fn pause(&mut self, step: &PlannedStep) {
        let target = format!("/api/threads/{}/lease", self.own.name);
        let Ok(answer) = self.get(&target) else { return };
        let lease = answer.json()["lease_id"].as_str().map(str::to_owned);
        let Some(lease) = lease else { return };
        let post = |what: &str| HttpRequest::new("POST", format!("/api/leases/{lease}/{what}"));
        let _ = self.change(&post("pause"), step);
        if step.choice.is_multiple_of(2) {
            let calm = PlannedStep { vanish: None, ..step.clone() };
            let _ = self.change(&post("resume"), &calm);
        }
        if self.own_state.unsettled.is_empty()
            && let Some((_, value)) = self.own_state.versions.last_key_value()
        {
            self.expect_in_shell(&self.own.terminal.clone(), *value, step);
        }
    }

    pub(super) fn verify_own(&mut self) {
        self.verify_shares();
        let found = self.names_in(&self.own.name, &plan::file("typed", self.index), "");
        for difference in self.own_state.typed.compare(&found) {
            self.world.report.violation("typed input", &self.own.name, difference);
        }
        let mut streams = std::mem::take(&mut self.own_state.streams);
        for stream in &mut streams {
            self.compare_whole_output(stream);
        }
        let found = self.all_messages();
        for difference in self.own_state.messages.compare(&found) {
            self.world.report.violation("message", &self.own.name, difference);
        }
        for (version, value) in &self.own_state.versions {
            let target = format!("/api/terminals/{}/versions/{version}", self.own.terminal);
            if let Some(answer) = self.get_with_retries(&target) {
                self.compare_version(&target, *version, *value, &answer);
            }
        }
        self.verify_versions(&self.own.terminal);
    }

    fn all_messages(&self) -> Vec<u64> {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let target = format!("/api/threads/{}/messages?limit=200{cursor}", self.own.name);
            let Some(answer) = self.get_with_retries(&target) else { return found };
            let page = answer.json();
            for item in page["items"].as_array().into_iter().flatten() {
                found.extend(item["content"].as_str().and_then(plan::parse_name));
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return found,
            }
        }
    }
}
