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

use super::{Asked, ENVD, Refusal, address::sandbox_id, network::Config, volume::Mount};
use crate::Compat;
use crate::{
    build::{ALIAS, CWD},
    port,
    reach::Network,
    sandbox::{Api, LONGEST, NewSandbox, OnTimeout, PAUSES_FILES, Sandbox, State as Life},
    usage::Size,
};
use api::error::Problem;
use model::{Lease, ThreadId, Timestamp};

/// The name under which E2B would know this machine.
const CLIENT: &str = "stead";
/// The time of a sandbox whose client names none, as the first version of the API has it.
const USUAL_SECONDS: u64 = 15;
/// The same in the second.
const LATER_SECONDS: u64 = 300;
/// Sandboxes of a page.
const PAGE: usize = 100;
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
    auto_pause_memory: Option<bool>,
    auto_resume: Option<AutoResume>,
    lifecycle: Option<Lifecycle>,
    #[serde(alias = "allow_internet_access")]
    allow_internet_access: Option<bool>,
    volume_mounts: Option<Vec<Mount>>,
    mcp: Option<Value>,
    iam: Option<Value>,
    network: Option<Config>,
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

pub(super) fn bad(message: impl Into<String>) -> Refusal {
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
    State(app): State<Compat>,
    Asked(asked): Asked<Create>,
) -> Result<Response, Refusal> {
    make(&app, asked, USUAL_SECONDS).await
}

/// The same in the second version of the API.
pub(super) async fn create_later(
    State(app): State<Compat>,
    Asked(asked): Asked<Create>,
) -> Result<Response, Refusal> {
    make(&app, asked, LATER_SECONDS).await
}

async fn make(app: &Compat, asked: Create, usual: u64) -> Result<Response, Refusal> {
    let mut config = asked.network.unwrap_or_default();
    config.allow_internet_access = asked.allow_internet_access;
    let network = config.network()?;
    if asked.iam.is_some_and(|iam| iam["tokens"].as_object().is_some_and(|it| !it.is_empty())) {
        return Err(bad("workload identities are not supported"));
    }
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
    api::check_env(Some(&env), "/envVars")?;
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
    let mut more: BTreeMap<String, String> = config.notes().into_iter().collect();
    if asked.auto_pause_memory == Some(false) {
        more.insert(PAUSES_FILES.to_owned(), "true".to_owned());
    }
    let new = NewSandbox {
        api: Api::E2b,
        id,
        template,
        timeout: seconds(asked.timeout.unwrap_or(usual))?,
        on_timeout: if pauses { OnTimeout::Pause } else { OnTimeout::Kill },
        auto_resume: resumes,
        env,
        metadata,
        more,
        policy: None,
        network,
        settings,
        fork: None,
    };
    let sandbox = app.make_sandbox(new).await?;
    Ok((StatusCode::CREATED, axum::Json(opened(app, &sandbox))).into_response())
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
    State(app): State<Compat>,
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
        let of_template = [ALIAS, CWD].map(|name| sandbox.more.get_key_value(name));
        let of_template = of_template.into_iter().flatten();
        let mut more: BTreeMap<_, _> = Config::of(&sandbox).notes().into_iter().collect();
        more.extend(of_template.map(|(name, value)| (name.clone(), value.clone())));
        let new = NewSandbox {
            api: Api::E2b,
            id,
            template: sandbox.template.clone(),
            timeout,
            on_timeout: sandbox.on_timeout,
            auto_resume: sandbox.auto_resume,
            env,
            metadata: sandbox.metadata.clone(),
            more,
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

/// What opens a sandbox.
fn opened(app: &Compat, sandbox: &Sandbox) -> Value {
    let keys = &app.sandboxes.keys;
    json!({
        "templateID": sandbox.template,
        "sandboxID": sandbox.id(),
        "alias": sandbox.more.get(ALIAS).unwrap_or(&sandbox.template),
        "clientID": CLIENT,
        "envdVersion": ENVD,
        "envdAccessToken": keys.access(sandbox.id()),
        // Also where ports are public: clients send no other key with the contexts of an interpreter.
        "trafficAccessToken": keys.traffic(sandbox.id()),
        "domain": port::domain(app).map(|(_, name)| name),
    })
}

pub(super) fn missing(id: &str) -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        format!("sandbox \"{id}\" doesn't exist or you don't have access to it"),
    )
}

pub(super) async fn find(app: &Compat, name: &str) -> Result<Sandbox, Refusal> {
    let id = sandbox_id(name).ok_or_else(|| missing(name))?;
    let found = app.sandbox(&id).await?.filter(|sandbox| sandbox.api == Api::E2b);
    found.ok_or_else(|| missing(name))
}

/// A sandbox as lists show it.
fn shown(app: &Compat, sandbox: &Sandbox, (state, lease): (Life, Option<Lease>)) -> Value {
    let mut shown = opened(app, sandbox);
    let size = Size::of(app, lease.as_ref());
    let (internet, network) = Config::of(sandbox).shown();
    let more = json!({
        "startedAt": sandbox.started.to_string(),
        "endAt": sandbox.ends.to_string(),
        "cpuCount": size.cpus,
        "memoryMB": size.memory >> 20,
        "diskSizeMB": size.disk >> 20,
        "state": match state { Life::Running => "running", Life::Paused => "paused" },
        "metadata": sandbox.metadata,
        "allowInternetAccess": internet,
        "lifecycle": {
            "autoResume": sandbox.auto_resume,
            "onTimeout": sandbox.on_timeout.word(),
        },
    });
    if let (Some(all), Value::Object(more)) = (shown.as_object_mut(), more) {
        all.extend(more);
    }
    if let Some(network) = network {
        shown["network"] = network;
    }
    if state == Life::Paused {
        shown["pauseMode"] = if sandbox.is_asleep() { "filesystem" } else { "full" }.into();
    }
    shown
}

/// A sandbox.
pub(super) async fn show(
    State(app): State<Compat>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    let state = app.sandbox_state(&sandbox).await?;
    Ok(axum::Json(shown(&app, &sandbox, state)))
}

/// Which sandboxes are asked for.
#[derive(Debug, Default)]
struct Filter {
    metadata: Vec<(String, String)>,
    states: Vec<String>,
    limit: Option<usize>,
    after: Option<(Timestamp, String)>,
    oldest_first: bool,
    started_after: Option<Timestamp>,
    template: Option<String>,
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
                "order" => {
                    filter.oldest_first = match &*value {
                        "asc" => true,
                        "desc" => false,
                        _ => return Err(bad("order is asc or desc")),
                    };
                }
                "startedAfter" => {
                    let at = value.parse().map_err(|_| bad("invalid startedAfter"))?;
                    filter.started_after = Some(at);
                }
                "template" => filter.template = Some(value.into_owned()),
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
        let place = (sandbox.started, sandbox.id().as_str());
        let after = self.after.as_ref().is_none_or(|(at, id)| {
            let last = (*at, id.as_str());
            if self.oldest_first { place > last } else { place < last }
        });
        after
            && self.started_after.is_none_or(|at| sandbox.started >= at)
            && self.template.as_ref().is_none_or(|name| *name == sandbox.template)
            && (self.states.is_empty() || self.states.iter().any(|state| state == word))
            && self.metadata.iter().all(|pair| has(sandbox, pair))
    }
}

/// Whether a sandbox has this note. Some clients write names and values as in an address once more.
fn has(sandbox: &Sandbox, (name, value): &(String, String)) -> bool {
    let plain = |text: &str| {
        form_urlencoded::parse(text.as_bytes()).next().map(|(name, _)| name.into_owned())
    };
    let is = |name: &str, value: &str| sandbox.metadata.get(name).is_some_and(|it| it == value);
    let once_more = || Some(is(&plain(name)?, &plain(value)?));
    is(name, value) || once_more().unwrap_or_default()
}

async fn listed(app: &Compat, filter: &Filter) -> Result<(Vec<Value>, Option<String>), Refusal> {
    let limit = filter.limit.unwrap_or(PAGE);
    let mut found = Vec::new();
    let mut last = None;
    let mut all = app.all_sandboxes(Api::E2b).await?;
    if filter.oldest_first {
        all.reverse();
    }
    for sandbox in all {
        let state = app.sandbox_state(&sandbox).await?;
        if !filter.takes(&sandbox, state.0) {
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
pub(super) async fn list(State(app): State<Compat>, uri: Uri) -> Result<Response, Refusal> {
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
    State(app): State<Compat>,
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
    State(app): State<Compat>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    let id = sandbox_id(&name).ok_or_else(|| missing(&name))?;
    match app.kill_sandbox(&id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(missing(&name)),
    }
}

/// How a sandbox is to be paused.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pause {
    /// Whether its programs go on afterwards; they do unless it says no.
    memory: Option<bool>,
}

/// Makes a sandbox hold still.
pub(super) async fn pause(
    State(app): State<Compat>,
    Path(name): Path<String>,
    Asked(Pause { memory }): Asked<Pause>,
) -> Result<StatusCode, Refusal> {
    let sandbox = find(&app, &name).await?;
    let paused = app.sandbox_state(&sandbox).await?.0 == Life::Paused;
    let done = match memory {
        _ if paused => false,
        Some(false) => app.suspend_sandbox(&sandbox).await?,
        Some(true) | None => app.pause_sandbox(&sandbox).await?,
    };
    match done {
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
    /// Whether what is resumed has its memory; it has unless it says no.
    memory: Option<bool>,
}

impl Time {
    fn timeout(&self) -> Result<Option<Duration>, Refusal> {
        self.timeout.map(seconds).transpose()
    }
}

/// Makes a sandbox go on if it is paused; it has at least so much time from now on.
pub(super) async fn connect(
    State(app): State<Compat>,
    Path(name): Path<String>,
    Asked(time): Asked<Time>,
) -> Result<Response, Refusal> {
    open(&app, &name, &time).await
}

/// The same in the second version of the API.
pub(super) async fn connect_later(
    State(app): State<Compat>,
    Path(name): Path<String>,
    Asked(time): Asked<Time>,
) -> Result<Response, Refusal> {
    let time = Time { timeout: time.timeout.or(Some(LATER_SECONDS)), ..time };
    open(&app, &name, &time).await
}

async fn open(app: &Compat, name: &str, time: &Time) -> Result<Response, Refusal> {
    let sandbox = find(app, name).await?;
    let timeout = time.timeout()?;
    let was_paused = wake(app, &sandbox, time.memory, timeout).await?;
    let status = if was_paused { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(opened(app, &sandbox))).into_response())
}

/// Makes a sandbox go on; without its memory it begins anew with its files.
async fn wake(
    app: &Compat,
    sandbox: &Sandbox,
    memory: Option<bool>,
    timeout: Option<Duration>,
) -> Result<bool, Refusal> {
    let mut sandbox = sandbox.clone();
    let paused = app.sandbox_state(&sandbox).await?.0 == Life::Paused;
    if paused && memory == Some(false) && !sandbox.is_asleep() {
        app.suspend_sandbox(&sandbox).await?;
        sandbox = find(app, sandbox.id().as_str()).await?;
    }
    Ok(app.wake_sandbox(&sandbox, timeout).await?)
}

/// Makes a paused sandbox go on; one that runs is refused.
pub(super) async fn resume(
    State(app): State<Compat>,
    Path(name): Path<String>,
    Asked(time): Asked<Time>,
) -> Result<Response, Refusal> {
    let sandbox = find(&app, &name).await?;
    if app.sandbox_state(&sandbox).await?.0 == Life::Running {
        let message = format!("Sandbox {name} is already running");
        return Err(Refusal::new(StatusCode::CONFLICT, message));
    }
    wake(&app, &sandbox, time.memory, time.timeout()?).await?;
    Ok((StatusCode::CREATED, axum::Json(opened(&app, &sandbox))).into_response())
}

/// Gives a sandbox so much time from now on.
pub(super) async fn timeout(
    State(app): State<Compat>,
    Path(name): Path<String>,
    Asked(time): Asked<Time>,
) -> Result<StatusCode, Refusal> {
    let time = time.timeout()?.ok_or_else(|| bad("timeout is missing"))?;
    extend(&app, &name, time, false).await
}

/// Gives a sandbox at least so much time from now on.
pub(super) async fn refresh(
    State(app): State<Compat>,
    Path(name): Path<String>,
    Asked(time): Asked<Time>,
) -> Result<StatusCode, Refusal> {
    let time = seconds(time.duration.unwrap_or(USUAL_SECONDS))?;
    extend(&app, &name, time, true).await
}

async fn extend(
    app: &Compat,
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
