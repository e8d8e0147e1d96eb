//! The control plane: sandboxes are made, listed, paused, resumed, given time, and deleted.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    extract::{Path, State},
    http::{HeaderValue, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Asked, ENVD, Refusal, address::sandbox_id, volume::Mount};
use crate::{
    api::{
        App,
        compat::{
            port,
            sandbox::{Api, LONGEST, Network, NewSandbox, OnTimeout, Sandbox, State as Life},
            wrap,
        },
        error::Problem,
    },
    model::{ThreadId, Timestamp},
    store::{CommandQuery, PageRequest},
};

/// The name under which E2B would know this machine.
const CLIENT: &str = "stead";
/// The time of a sandbox whose client names none.
const USUAL_SECONDS: u64 = 15;
/// Sandboxes of a page.
const PAGE: usize = 100;
/// Log lines of an answer.
const LINES: usize = 1000;
/// What a rule calls all addresses.
const EVERYTHING: &str = "0.0.0.0/0";
/// Copies of a sandbox that one request makes.
const MOST_FORKS: usize = 20;
/// Bytes of all notes of a sandbox.
const MOST_NOTES: usize = 64 << 10;

/// What a client asks for. Fields that are not known here are a later version's.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Create {
    #[serde(alias = "templateID")]
    template_id: String,
    timeout: Option<u64>,
    metadata: Option<BTreeMap<String, String>>,
    env_vars: Option<BTreeMap<String, String>>,
    auto_pause: Option<bool>,
    auto_resume: Option<AutoResume>,
    lifecycle: Option<Lifecycle>,
    #[serde(alias = "allow_internet_access")]
    allow_internet_access: Option<bool>,
    volume_mounts: Option<Vec<Mount>>,
    mcp: Option<Value>,
    network: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AutoResume {
    enabled: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Lifecycle {
    on_timeout: Option<String>,
    auto_resume: Option<bool>,
}

fn bad(message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, message)
}

fn seconds(given: u64) -> Result<Duration, Refusal> {
    let time = Duration::from_secs(given);
    if time > LONGEST {
        return Err(bad(format!("Timeout cannot be greater than {} seconds", LONGEST.as_secs())));
    }
    Ok(time)
}

/// Makes a sandbox.
pub(super) async fn create(
    State(app): State<App>,
    Asked(asked): Asked<Create>,
) -> Result<Response, Refusal> {
    let rules = asked.network.unwrap_or_default();
    let network = network(asked.allow_internet_access, &rules)?;
    let mut settings = serde_json::Map::new();
    let mounts = asked.volume_mounts.unwrap_or_default();
    let mounts = mounts.into_iter().map(Into::into).collect();
    let mounted = app.mount_volumes(&mut settings, mounts).await;
    mounted.map_err(|problem| bad(problem.detail()))?;
    if asked.mcp.is_some_and(|mcp| !mcp.is_null()) {
        return Err(bad("MCP servers in sandboxes are not supported"));
    }
    let metadata = asked.metadata.unwrap_or_default();
    if metadata.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MOST_NOTES {
        return Err(bad(format!("metadata may have {MOST_NOTES} bytes")));
    }
    let mut env = asked.env_vars.unwrap_or_default();
    crate::api::terminals::check_env(Some(&env), "/envVars")?;
    let lifecycle = asked.lifecycle.unwrap_or_default();
    let pauses = asked.auto_pause == Some(true) || lifecycle.on_timeout.as_deref() == Some("pause");
    let resumes =
        asked.auto_resume.is_some_and(|it| it.enabled) || lifecycle.auto_resume.unwrap_or_default();
    let template = match asked.template_id.as_str() {
        "" => "base".to_owned(),
        name => name.to_owned(),
    };
    let id = fresh_id()?;
    for (name, value) in
        [("E2B_SANDBOX", "true"), ("E2B_SANDBOX_ID", id.as_str()), ("E2B_TEMPLATE_ID", &template)]
    {
        env.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    let new = NewSandbox {
        api: Api::E2b,
        id,
        template,
        timeout: seconds(asked.timeout.unwrap_or(USUAL_SECONDS))?,
        on_timeout: if pauses { OnTimeout::Pause } else { OnTimeout::Kill },
        auto_resume: resumes,
        env,
        metadata,
        more: BTreeMap::from([(port::OPEN_TO.to_owned(), open_to(&rules).to_owned())]),
        policy: None,
        network,
        settings,
        fork: None,
    };
    let sandbox = app.make_sandbox(new).await?;
    Ok((StatusCode::CREATED, axum::Json(opened(&app, &sandbox))).into_response())
}

fn fresh_id() -> Result<ThreadId, Problem> {
    let mut random = [0; 10];
    getrandom::fill(&mut random)
        .map_err(|error| Problem::internal("cannot name a sandbox", &error))?;
    let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("i{id}").parse().expect("letters and digits are an id"))
}

/// How many copies are wanted, and how long each has.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Fork {
    timeout: Option<u64>,
    count: Option<usize>,
}

/// Makes sandboxes with the files of one. Each comes into being or not; the answer says so of each.
pub(super) async fn fork(
    State(app): State<App>,
    Path(name): Path<String>,
    Asked(asked): Asked<Fork>,
) -> Result<Response, Refusal> {
    let sandbox = find(&app, &name).await?;
    let timeout = seconds(asked.timeout.unwrap_or(USUAL_SECONDS))?;
    let count = asked.count.unwrap_or(1);
    if !(1..=MOST_FORKS).contains(&count) {
        return Err(bad(format!("count must be 1 to {MOST_FORKS}")));
    }
    let mut made = Vec::with_capacity(count);
    for _ in 0..count {
        let id = fresh_id()?;
        let mut env = sandbox.thread.env.clone();
        env.insert("E2B_SANDBOX_ID".to_owned(), id.to_string());
        let open_to = sandbox.more.get_key_value(port::OPEN_TO);
        let new = NewSandbox {
            api: Api::E2b,
            id,
            template: sandbox.template.clone(),
            timeout,
            on_timeout: sandbox.on_timeout,
            auto_resume: sandbox.auto_resume,
            env,
            metadata: sandbox.metadata.clone(),
            more: open_to.map(|(name, to)| (name.clone(), to.clone())).into_iter().collect(),
            policy: None,
            network: Network::Usual,
            settings: serde_json::Map::new(),
            fork: None,
        };
        made.push(match app.fork_sandbox(&sandbox, new).await {
            Ok(fork) => json!({"sandbox": opened(&app, &fork)}),
            Err(problem) => json!({"error": Refusal::from(problem).body()}),
        });
    }
    Ok((StatusCode::CREATED, axum::Json(made)).into_response())
}

/// What a sandbox may reach. What cannot be had is refused: a program that asks to be cut off must not
/// run believing that it is.
fn network(allowed: Option<bool>, rules: &Value) -> Result<Network, Refusal> {
    let list = |names: [&str; 2]| {
        let given = names.iter().find_map(|name| rules[*name].as_array());
        given.map_or(&[][..], Vec::as_slice)
    };
    let (denied, exempt) = (list(["denyOut", "deny_out"]), list(["allowOut", "allow_out"]));
    let none = allowed == Some(false)
        || rules["allowInternetAccess"] == json!(false)
        || denied.contains(&json!(EVERYTHING));
    match (none, denied.is_empty(), exempt.is_empty()) {
        (true, _, true) => Ok(Network::Nothing),
        (false, true, _) => Ok(Network::Usual),
        _ => Err(bad("rules for single hosts are the server's settings (`sandbox.egress`)")),
    }
}

/// Who may reach what its programs listen on.
fn open_to(network: &Value) -> &'static str {
    let public = [&network["allowPublicTraffic"], &network["allow_public_traffic"]];
    if public.contains(&&json!(false)) { port::KEY } else { port::ANYBODY }
}

/// What opens a sandbox.
fn opened(app: &App, sandbox: &Sandbox) -> Value {
    let key = app.sandboxes.keys.access(sandbox.id());
    let is_private = sandbox.more.get(port::OPEN_TO).is_some_and(|word| word == port::KEY);
    json!({
        "templateID": sandbox.template,
        "sandboxID": sandbox.id(),
        "alias": sandbox.template,
        "clientID": CLIENT,
        "envdVersion": ENVD,
        "envdAccessToken": key,
        "trafficAccessToken": is_private.then_some(&key),
        "domain": port::domain(app).map(|(_, name)| name),
    })
}

fn missing(id: &str) -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        format!("sandbox \"{id}\" doesn't exist or you don't have access to it"),
    )
}

pub(super) async fn find(app: &App, name: &str) -> Result<Sandbox, Refusal> {
    let id = sandbox_id(name).ok_or_else(|| missing(name))?;
    let found = app.sandbox(&id).await?.filter(|sandbox| sandbox.api == Api::E2b);
    found.ok_or_else(|| missing(name))
}

/// A sandbox as lists show it.
fn shown(app: &App, sandbox: &Sandbox, state: Life) -> Value {
    let mut shown = opened(app, sandbox);
    let more = json!({
        "startedAt": sandbox.started.to_string(),
        "endAt": sandbox.ends.to_string(),
        "cpuCount": cpus(),
        "memoryMB": memory_bytes() >> 20,
        "diskSizeMB": disk_bytes(app).1 >> 20,
        "state": match state { Life::Running => "running", Life::Paused => "paused" },
        "metadata": sandbox.metadata,
        "allowInternetAccess": null,
        "lifecycle": {
            "autoResume": sandbox.auto_resume,
            "onTimeout": sandbox.on_timeout.word(),
        },
    });
    if let (Some(all), Value::Object(more)) = (shown.as_object_mut(), more) {
        all.extend(more);
    }
    shown
}

pub(super) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

pub(super) fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram * u64::from(info.mem_unit)
}

/// How much of the disk is used, and how much there is.
pub(super) fn disk_bytes(app: &App) -> (u64, u64) {
    match rustix::fs::statvfs(&app.settings.home) {
        Ok(disk) => ((disk.f_blocks - disk.f_bfree) * disk.f_frsize, disk.f_blocks * disk.f_frsize),
        Err(_) => (0, 0),
    }
}

/// A sandbox.
pub(super) async fn show(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    let (state, _) = app.sandbox_state(&sandbox).await?;
    Ok(axum::Json(shown(&app, &sandbox, state)))
}

/// Which sandboxes are asked for.
#[derive(Debug, Default)]
struct Filter {
    metadata: Vec<(String, String)>,
    states: Vec<String>,
    limit: Option<usize>,
    after: Option<(Timestamp, String)>,
}

impl Filter {
    fn parse(query: &str) -> Result<Filter, Refusal> {
        let mut filter = Filter::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                // A query in a query.
                "metadata" => {
                    let pairs = form_urlencoded::parse(value.as_bytes());
                    filter.metadata = pairs.into_owned().collect();
                }
                "state" => filter.states.extend(value.split(',').map(str::to_owned)),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=PAGE).contains(limit));
                    let wrong = || bad(format!("limit must be 1 to {PAGE}"));
                    filter.limit = Some(limit.ok_or_else(wrong)?);
                }
                "nextToken" if !value.is_empty() => {
                    let place = URL_SAFE_NO_PAD.decode(value.as_bytes()).ok();
                    let place = place.and_then(|bytes| String::from_utf8(bytes).ok());
                    let place = place.and_then(|text| {
                        let (at, id) = text.split_once(' ')?;
                        Some((at.parse().ok()?, id.to_owned()))
                    });
                    filter.after = Some(place.ok_or_else(|| bad("invalid nextToken"))?);
                }
                _ => {}
            }
        }
        Ok(filter)
    }

    fn takes(&self, sandbox: &Sandbox, state: Life) -> bool {
        let word = match state {
            Life::Running => "running",
            Life::Paused => "paused",
        };
        let after = self
            .after
            .as_ref()
            .is_none_or(|(at, id)| (sandbox.started, sandbox.id().as_str()) < (*at, id.as_str()));
        after
            && (self.states.is_empty() || self.states.iter().any(|state| state == word))
            && self.metadata.iter().all(|(name, value)| sandbox.metadata.get(name) == Some(value))
    }
}

async fn listed(app: &App, filter: &Filter) -> Result<(Vec<Value>, Option<String>), Refusal> {
    let limit = filter.limit.unwrap_or(PAGE);
    let mut found = Vec::new();
    let mut last = None;
    for sandbox in app.all_sandboxes(Api::E2b).await? {
        let (state, _) = app.sandbox_state(&sandbox).await?;
        if !filter.takes(&sandbox, state) {
            continue;
        }
        if found.len() == limit {
            return Ok((found, last));
        }
        last = Some(URL_SAFE_NO_PAD.encode(format!("{} {}", sandbox.started, sandbox.id())));
        found.push(shown(app, &sandbox, state));
    }
    Ok((found, None))
}

/// A page of sandboxes, the youngest first.
pub(super) async fn list(State(app): State<App>, uri: Uri) -> Result<Response, Refusal> {
    let filter = Filter::parse(uri.query().unwrap_or_default())?;
    let (found, next) = listed(&app, &filter).await?;
    let mut response = axum::Json(found).into_response();
    if let Some(Ok(next)) = next.map(|next| HeaderValue::from_str(&next)) {
        response.headers_mut().insert("x-next-token", next);
    }
    Ok(response)
}

/// All sandboxes that run, as the first version of the API lists them.
pub(super) async fn list_running(
    State(app): State<App>,
    uri: Uri,
) -> Result<axum::Json<Vec<Value>>, Refusal> {
    let mut filter = Filter::parse(uri.query().unwrap_or_default())?;
    if filter.states.is_empty() {
        filter.states.push("running".to_owned());
    }
    filter.limit = Some(usize::MAX);
    Ok(axum::Json(listed(&app, &filter).await?.0))
}

/// Deletes a sandbox.
pub(super) async fn kill(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    let id = sandbox_id(&name).ok_or_else(|| missing(&name))?;
    match app.kill_sandbox(&id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(missing(&name)),
    }
}

/// How a sandbox is to be paused. Its memory is kept in any case.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pause {}

/// Makes a sandbox hold still.
pub(super) async fn pause(
    State(app): State<App>,
    Path(name): Path<String>,
    Asked(Pause {}): Asked<Pause>,
) -> Result<StatusCode, Refusal> {
    let sandbox = find(&app, &name).await?;
    match app.pause_sandbox(&sandbox).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => {
            let message = format!("Error pausing sandbox - sandbox '{name}' is already paused");
            Err(Refusal::new(StatusCode::CONFLICT, message))
        }
    }
}

/// How long a sandbox is to have.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Time {
    timeout: Option<u64>,
    duration: Option<u64>,
}

impl Time {
    fn timeout(&self) -> Result<Option<Duration>, Refusal> {
        self.timeout.map(seconds).transpose()
    }
}

/// Makes a sandbox go on if it is paused; it has at least so much time from now on.
pub(super) async fn connect(
    State(app): State<App>,
    Path(name): Path<String>,
    Asked(time): Asked<Time>,
) -> Result<Response, Refusal> {
    let sandbox = find(&app, &name).await?;
    let was_paused = app.wake_sandbox(&sandbox, time.timeout()?).await?;
    let status = if was_paused { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(opened(&app, &sandbox))).into_response())
}

/// Makes a paused sandbox go on; one that runs is refused.
pub(super) async fn resume(
    State(app): State<App>,
    Path(name): Path<String>,
    Asked(time): Asked<Time>,
) -> Result<Response, Refusal> {
    let sandbox = find(&app, &name).await?;
    if app.sandbox_state(&sandbox).await?.0 == Life::Running {
        let message = format!("Sandbox {name} is already running");
        return Err(Refusal::new(StatusCode::CONFLICT, message));
    }
    app.wake_sandbox(&sandbox, time.timeout()?).await?;
    Ok((StatusCode::CREATED, axum::Json(opened(&app, &sandbox))).into_response())
}

/// Gives a sandbox so much time from now on.
pub(super) async fn timeout(
    State(app): State<App>,
    Path(name): Path<String>,
    Asked(time): Asked<Time>,
) -> Result<StatusCode, Refusal> {
    let time = time.timeout()?.ok_or_else(|| bad("timeout is missing"))?;
    extend(&app, &name, time, false).await
}

/// Gives a sandbox at least so much time from now on.
pub(super) async fn refresh(
    State(app): State<App>,
    Path(name): Path<String>,
    Asked(time): Asked<Time>,
) -> Result<StatusCode, Refusal> {
    let time = seconds(time.duration.unwrap_or(USUAL_SECONDS))?;
    extend(&app, &name, time, true).await
}

async fn extend(
    app: &App,
    name: &str,
    time: Duration,
    only_more: bool,
) -> Result<StatusCode, Refusal> {
    let id = sandbox_id(name).ok_or_else(|| missing(name))?;
    match app.extend_sandbox(&id, time, only_more).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(missing(name)),
    }
}

/// What a sandbox uses at one moment.
pub struct Used {
    at: Timestamp,
    cpu_percent: f64,
    memory: u64,
    disk: (u64, u64),
}

impl Used {
    /// Of this sandbox, now.
    pub async fn of(app: &App, sandbox: &Sandbox) -> Result<Used, Problem> {
        let at = app.now().at;
        let (_, lease) = app.sandbox_state(sandbox).await?;
        let metrics = match &lease {
            Some(lease) => {
                let measured = app.leases.metrics(lease).await;
                measured?.unwrap_or_default()
            }
            None => Default::default(),
        };
        // On average since it was made: nobody has looked before.
        let since = lease.as_ref().and_then(|lease| lease.instance());
        let since = since.map_or(sandbox.started, |(instance, _)| instance.started_at);
        let seconds = at.duration_since(since).as_secs_f64().max(0.001);
        let used = metrics.cpu_us as f64 / 1e6 / seconds / cpus() as f64 * 100.0;
        let (all_used, all) = disk_bytes(app);
        let disk = if metrics.disk_bytes > 0 { metrics.disk_bytes } else { all_used };
        let cpu_percent = (used.min(100.0) * 100.0).round() / 100.0;
        Ok(Used { at, cpu_percent, memory: metrics.memory_bytes, disk: (disk, all) })
    }

    /// As the control plane writes it.
    pub fn of_control(&self) -> Value {
        json!({
            "timestamp": self.at.to_string(),
            "timestampUnix": self.at.as_second(),
            "cpuCount": cpus(),
            "cpuUsedPct": self.cpu_percent,
            "memUsed": self.memory,
            "memTotal": memory_bytes(),
            "memCache": 0,
            "diskUsed": self.disk.0,
            "diskTotal": self.disk.1,
            "diskFree": self.disk.1.saturating_sub(self.disk.0),
        })
    }

    /// As the daemon writes it.
    pub(super) fn of_daemon(&self) -> Value {
        json!({
            "ts": self.at.as_second(),
            "cpu_count": cpus(),
            "cpu_used_pct": self.cpu_percent,
            "mem_total": memory_bytes(),
            "mem_total_mib": memory_bytes() >> 20,
            "mem_used": self.memory,
            "mem_used_mib": self.memory >> 20,
            "disk_used": self.disk.0,
            "disk_total": self.disk.1,
        })
    }
}

/// What a sandbox uses. There is one measurement, of now.
pub(super) async fn metrics(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    let used = Used::of(&app, &sandbox).await?;
    Ok(axum::Json(json!([used.of_control()])))
}

/// What several sandboxes use.
pub(super) async fn metrics_of(
    State(app): State<App>,
    uri: Uri,
) -> Result<axum::Json<Value>, Refusal> {
    let mut all = serde_json::Map::new();
    let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    for (_, value) in query.filter(|(name, _)| name == "sandbox_ids") {
        for name in value.split(',').take(PAGE) {
            if let Ok(sandbox) = find(&app, name).await {
                let used = Used::of(&app, &sandbox).await?;
                all.insert(sandbox.id().to_string(), used.of_control());
            }
        }
    }
    Ok(axum::Json(json!({"sandboxes": all})))
}

/// What was run in a sandbox, and how it ended.
pub(super) async fn logs(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    let mut lines: Vec<(Timestamp, String)> = Vec::new();
    for terminal in app.store.thread_terminals(sandbox.id()).await.map_err(problem)? {
        let (query, page) = (CommandQuery::default(), PageRequest::first(200));
        let commands = app.store.commands(&terminal.terminal_id, query, page).await;
        for command in commands.map_err(problem)?.items {
            let text = match wrap::parse(&command.text) {
                Some((config, _)) => [&[config.cmd], &config.args[..]].concat().join(" "),
                None => command.text.clone(),
            };
            if let (Some(at), Some(code)) = (command.finished_at, command.exit_code) {
                lines.push((at, format!("exit status {code}: {text}")));
            }
            lines.push((command.created_at, format!("started: {text}")));
        }
    }
    lines.sort();
    let surplus = lines.len().saturating_sub(LINES);
    let lines = &lines[surplus..];
    let old = |(at, line): &(Timestamp, String)| json!({"timestamp": at.to_string(), "line": line});
    let new = |(at, line): &(Timestamp, String)| json!({"timestamp": at.to_string(), "message": line, "level": "info", "fields": {}});
    let entries: Vec<Value> = lines.iter().map(new).collect();
    // The older and the newer form have the same name for different things.
    let logs: Vec<Value> = lines
        .iter()
        .zip(&entries)
        .map(|(line, entry)| {
            let mut both = old(line);
            if let (Some(all), Some(entry)) = (both.as_object_mut(), entry.as_object()) {
                all.extend(entry.clone());
            }
            both
        })
        .collect();
    Ok(axum::Json(json!({"logs": logs, "logEntries": entries})))
}

fn problem(error: crate::store::StoreError) -> Refusal {
    Problem::from(error).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sandbox_may_reach_is_what_was_asked_for_or_refused() {
        let check = |allowed, rules: Value, expected: Option<Network>| {
            assert_eq!(network(allowed, &rules).ok(), expected, "{allowed:?} {rules}");
        };
        check(None, Value::Null, Some(Network::Usual));
        check(Some(true), json!({"allowPublicTraffic": false}), Some(Network::Usual));
        check(Some(false), Value::Null, Some(Network::Nothing));
        check(None, json!({"denyOut": ["0.0.0.0/0"]}), Some(Network::Nothing));
        check(None, json!({"deny_out": ["0.0.0.0/0"], "allow_out": ["1.1.1.1"]}), None);
        check(None, json!({"denyOut": ["8.8.8.8"]}), None);
        check(Some(false), json!({"allowOut": ["1.1.1.1"]}), None);
    }
}
