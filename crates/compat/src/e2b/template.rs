//! Templates: what sandboxes can be made from. They are built, tagged, listed and deleted here; the
//! providers and the snapshots of sandboxes are templates, too.

use std::collections::{BTreeMap, BTreeSet};

use axum::{
    body::Body,
    extract::{Path, Query, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{E2bApi, E2bJson, E2bRefusal, ENVD, bad};
use adapter::Adapter;
use adapter::{
    build::{
        is_of_build,
        log::{Level, LogLine},
        plan::{Base, CopyStep, MAX_SOURCE_BYTES, MAX_STEPS, Plan, Step},
        split_tag, upload,
    },
    usage::SandboxSize,
    vendor::{self, VendorApi},
};
use api::error::Problem;
use model::{Build, BuildStatus, Tag, Template, Timestamp, USUAL_TAG};

/// The template that stands for the server's own choice.
pub(super) const BASE: &str = "base";
/// The tag that every name may have.
pub(super) const TAG: &str = ":default";
/// Templates, and lines of a log, of one answer.
const PAGE: usize = 100;
/// Tags that one request names.
const MAX_TAGS: usize = 50;
/// How long a link for files is good.
const LINK_SECONDS: i64 = 3600;
/// A build that is none, for what was not built.
const NO_BUILD: &str = "00000000-0000-0000-0000-000000000000";

const OWNER: &str = "e2b";

fn missing(name: &str) -> E2bRefusal {
    E2bRefusal::new(StatusCode::NOT_FOUND, format!("template '{name}' not found"))
}

fn problem(error: store::StoreError) -> E2bRefusal {
    Problem::from(error).into()
}

async fn find(app: &Adapter, name: &str) -> Result<Template, E2bRefusal> {
    let found = app.store.template(OWNER, name).await.map_err(problem)?;
    found.ok_or_else(|| missing(name))
}

/// The template of a build, and the build.
async fn find_build(
    app: &Adapter,
    name: &str,
    build: &str,
) -> Result<(Template, Build), E2bRefusal> {
    let template = find(app, name).await?;
    let found = template.build(build).cloned();
    let absent = || E2bRefusal::new(StatusCode::NOT_FOUND, format!("build '{build}' not found"));
    found.map(|build| (template, build)).ok_or_else(absent)
}

fn is_word(text: &str, beyond: &[u8]) -> bool {
    let takes = |byte: u8| byte.is_ascii_alphanumeric() || beyond.contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(takes)
}

/// A name that a template may have, as it is written down.
fn checked_name(name: &str) -> Result<String, E2bRefusal> {
    let name = name.trim().to_ascii_lowercase();
    let is_good = is_word(&name, b"-_./") && name.split('/').count() <= 2;
    match is_good && !name.split('/').any(str::is_empty) {
        true => Ok(name),
        false => Err(bad(format!(
            "invalid template name '{name}': it has letters, digits, '-', '_', '.', and one '/' at most"
        ))),
    }
}

fn checked_tags(tags: Vec<String>) -> Result<Vec<String>, E2bRefusal> {
    if tags.len() > MAX_TAGS {
        return Err(bad(format!("a request may have {MAX_TAGS} tags")));
    }
    match tags.iter().find(|tag| !is_word(tag, b"-_.")) {
        Some(tag) => Err(bad(format!("invalid tag '{tag}'"))),
        None => Ok(tags),
    }
}

/// A build that is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TemplateRequest {
    name: Option<String>,
    alias: Option<String>,
    tags: Option<Vec<String>>,
}

/// Notes a build; its files and its steps come later.
pub(super) async fn request(
    State(app): State<Adapter>,
    E2bJson(asked): E2bJson<TemplateRequest>,
) -> Result<Response, E2bRefusal> {
    let name = asked.name.or(asked.alias).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| bad("a template needs a name"))?;
    let (name, tag) = split_tag(&name);
    let name = checked_name(name)?;
    if name == BASE || app.leases.providers().named(&name).is_ok() {
        return Err(E2bRefusal::new(
            StatusCode::CONFLICT,
            format!("'{name}' is taken by the server"),
        ));
    }
    let mut tags: Vec<String> = tag.map(str::to_owned).into_iter().collect();
    tags.extend(asked.tags.unwrap_or_default());
    if tags.is_empty() {
        tags.push(USUAL_TAG.to_owned());
    }
    let mut named = BTreeSet::new();
    tags.retain(|tag| named.insert(tag.clone()));
    let tags = checked_tags(tags)?;
    let id = uuid::Uuid::now_v7().to_string();
    let build = Build::new(id.parse().expect("a uuid is an id"), tags.clone(), app.now().at);
    let template = app.request_build(&E2bApi, &name, build).await?;
    let body = json!({
        "templateID": template.template_id,
        "buildID": id,
        "public": false,
        "names": [name],
        "aliases": [name],
        "tags": tags,
    });
    Ok((StatusCode::ACCEPTED, axum::Json(body)).into_response())
}

/// Says whether files are here, and where to send them.
pub(super) async fn files(
    State(app): State<Adapter>,
    Path((name, hash)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, E2bRefusal> {
    let template = find(&app, &name).await?;
    let path = upload::path(&app.settings.home, &hash)?;
    let present = tokio::fs::try_exists(path).await.unwrap_or(false);
    let until = app.now().at.as_second() + LINK_SECONDS;
    let signature = app.keys().upload(&hash, until);
    let said = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let ours = app.settings.scheme().name();
    let scheme = said("x-forwarded-proto").filter(|scheme| *scheme == "https").unwrap_or(ours);
    let address = match said(header::HOST.as_str()) {
        Some(host) => format!("{scheme}://{host}"),
        None => app.url.clone(),
    };
    let id = &template.template_id;
    let url = format!("{address}/templates/{id}/files/{hash}?until={until}&signature={signature}");
    let body = axum::Json(json!({"present": present, "url": url}));
    Ok((StatusCode::CREATED, body).into_response())
}

/// The hash of the files that are sent to a path.
pub fn uploaded(path: &str) -> Option<&str> {
    let (template, hash) = path.strip_prefix("/templates/")?.split_once("/files/")?;
    (!template.contains('/') && !hash.contains('/')).then_some(hash)
}

/// Whether a request sends files by a link of [`files`].
pub fn may_upload(app: &Adapter, method: &Method, uri: &Uri) -> bool {
    let Some(hash) = uploaded(uri.path()).filter(|_| *method == Method::PUT) else { return false };
    let (mut until, mut signature) = (None, None);
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        match &*name {
            "until" => until = value.parse::<i64>().ok(),
            "signature" => signature = Some(value.into_owned()),
            _ => {}
        }
    }
    let (Some(until), Some(signature)) = (until, signature) else { return false };
    app.keys().opens_upload(hash, until, &signature, app.now().at.as_second())
}

pub(super) async fn take(
    State(app): State<Adapter>,
    Path((_, hash)): Path<(String, String)>,
    body: Body,
) -> Result<StatusCode, E2bRefusal> {
    upload::receive(&app, &hash, body).await?;
    Ok(StatusCode::OK)
}

/// What a build is to do.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Begin {
    from_image: Option<String>,
    from_template: Option<String>,
    steps: Vec<Given>,
    start_cmd: Option<String>,
    ready_cmd: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Given {
    #[serde(rename = "type")]
    kind: String,
    args: Vec<String>,
    files_hash: Option<String>,
}

impl Given {
    fn step(self) -> Result<Step, String> {
        let Given { kind, args, files_hash } = self;
        let given = |index: usize| args.get(index).filter(|word| !word.is_empty()).cloned();
        let needed = |index: usize| given(index).ok_or(format!("{kind} needs {} words", index + 1));
        Ok(match kind.to_ascii_uppercase().as_str() {
            "RUN" => Step::Run { command: needed(0)?, user: given(1) },
            "WORKDIR" => Step::Workdir(needed(0)?),
            "USER" => Step::User(needed(0)?),
            "ENV" if args.len().is_multiple_of(2) => {
                let pairs = args.chunks_exact(2);
                Step::Env(pairs.map(|pair| (pair[0].clone(), pair[1].clone())).collect())
            }
            "ENV" => return Err("ENV needs names and values".to_owned()),
            "ARG" => Step::Arg(needed(0)?, given(1).unwrap_or_default()),
            "COPY" | "ADD" => Step::Copy(CopyStep {
                hash: files_hash.ok_or(format!("{kind} names no files that were sent"))?,
                source: needed(0)?,
                target: needed(1)?,
                owner: given(2),
                mode: given(3),
            }),
            _ => return Err(format!("{kind} is no step of a build")),
        })
    }
}

impl Begin {
    fn plan(self) -> Result<Plan, String> {
        let words = self.steps.iter().flat_map(|step| &step.args).map(String::len).sum::<usize>();
        if self.steps.len() > MAX_STEPS || words > MAX_SOURCE_BYTES {
            return Err(format!(
                "a build may have {MAX_STEPS} steps and {MAX_SOURCE_BYTES} bytes of words"
            ));
        }
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let base = match (given(self.from_template), given(self.from_image)) {
            (Some(template), _) => Base::Template(template),
            (None, Some(image)) => Base::Image(image),
            (None, None) => Base::Template(BASE.to_owned()),
        };
        let mut steps = Vec::with_capacity(self.steps.len());
        for (index, step) in self.steps.into_iter().enumerate() {
            let step = step.step().map_err(|why| format!("step {}: {why}", index + 1))?;
            if let Step::Env(pairs) = &step {
                let env = pairs.iter().cloned().collect();
                api::check_env(Some(&env), "/steps")
                    .map_err(|problem| format!("step {}: {}", index + 1, problem.detail()))?;
            }
            steps.push(step);
        }
        Ok(Plan {
            base,
            user: E2bApi.user().to_owned(),
            cwd: vendor::home(&E2bApi),
            steps,
            start: given(self.start_cmd),
            ready: given(self.ready_cmd),
            remarks: vec![],
        })
    }
}

/// Begins with the steps of a build.
pub(super) async fn start(
    State(app): State<Adapter>,
    Path((name, build)): Path<(String, String)>,
    E2bJson(asked): E2bJson<Begin>,
) -> Result<StatusCode, E2bRefusal> {
    let (template, build) = find_build(&app, &name, &build).await?;
    let plan = asked.plan().map_err(bad)?;
    app.start_build(&E2bApi, &template.template_id, &build.build_id, plan, None).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Which lines are asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BuildLogQuery {
    logs_offset: Option<u64>,
    cursor: Option<i64>,
    limit: Option<usize>,
    level: Option<Level>,
    direction: Option<String>,
}

impl BuildLogQuery {
    fn limit(&self) -> usize {
        self.limit.unwrap_or(PAGE).clamp(1, PAGE)
    }
}

fn line(line: &LogLine) -> Value {
    json!(line)
}

/// The status of a build, and its log.
pub(super) async fn status(
    State(app): State<Adapter>,
    Path((name, build)): Path<(String, String)>,
    Query(lines): Query<BuildLogQuery>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let (template, build) = find_build(&app, &name, &build).await?;
    let least = lines.level.unwrap_or(Level::Debug);
    let from = lines.logs_offset.unwrap_or(0);
    let read = app.build_log(&build.build_id, from, lines.limit(), least).await?;
    let mut body = json!({
        "templateID": template.template_id,
        "buildID": build.build_id,
        "status": build.status.word(),
        "logs": [],
        "logEntries": read.iter().map(line).collect::<Vec<_>>(),
    });
    if let BuildStatus::Failed(failure) = &build.status {
        body["reason"] = json!({"message": failure.message, "logEntries": []});
        if let Some(step) = &failure.step {
            body["reason"]["step"] = json!(step);
        }
    }
    Ok(axum::Json(body))
}

/// The log of a build from a time on, or up to one.
pub(super) async fn logs(
    State(app): State<Adapter>,
    Path((name, build)): Path<(String, String)>,
    Query(lines): Query<BuildLogQuery>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let (_, build) = find_build(&app, &name, &build).await?;
    let least = lines.level.unwrap_or(Level::Debug);
    let mut all = app.build_log(&build.build_id, 0, usize::MAX, least).await?;
    let backward = lines.direction.as_deref() == Some("backward");
    if backward {
        all.reverse();
    }
    let takes = |line: &&LogLine| match (lines.cursor, backward) {
        (None, _) => true,
        (Some(at), true) => line.timestamp.as_millisecond() <= at,
        (Some(at), false) => line.timestamp.as_millisecond() >= at,
    };
    let found: Vec<_> = all.iter().filter(takes).take(lines.limit()).map(line).collect();
    Ok(axum::Json(json!({"logs": found})))
}

/// A template as lists show it.
fn shown(app: &Adapter, template: &Template) -> Value {
    let latest = template.tagged(USUAL_TAG).or_else(|| template.builds.last());
    let mut shown = plain(app, template.template_id.as_str(), &template.name, template.created_at);
    shown["updatedAt"] = json!(template.updated_at.to_string());
    shown["buildCount"] = json!(template.builds.len());
    if let Some(build) = latest {
        shown["buildID"] = json!(build.build_id);
        shown["buildStatus"] = json!(build.status.word());
    }
    shown
}

/// One that was not built.
fn plain(app: &Adapter, id: &str, name: &str, at: Timestamp) -> Value {
    let size = SandboxSize::default_size(app);
    json!({
        "templateID": id,
        "buildID": NO_BUILD,
        "cpuCount": size.cpus,
        "memoryMB": size.memory >> 20,
        "diskSizeMB": size.disk >> 20,
        "public": false,
        "aliases": [name],
        "names": [name],
        "createdAt": at.to_string(),
        "updatedAt": at.to_string(),
        "createdBy": null,
        "lastSpawnedAt": null,
        "spawnCount": 0,
        "buildCount": 0,
        "envdVersion": ENVD,
        "buildStatus": "ready",
    })
}

/// Which page is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TemplatePageQuery {
    next_token: Option<String>,
    limit: Option<usize>,
}

/// Everything that sandboxes can be made from, by id.
async fn all(app: &Adapter) -> Result<BTreeMap<String, Value>, E2bRefusal> {
    let began = Timestamp::UNIX_EPOCH;
    let mut names = BTreeMap::from([(BASE.to_owned(), began)]);
    names.extend(app.leases.providers().all().map(|it| (it.name().to_owned(), began)));
    names.extend(app.snapshots().await?.into_iter().filter(|(name, _)| !is_of_build(name)));
    let shown_plain = |(name, at): (String, Timestamp)| {
        let shown = plain(app, &name, &name, at);
        (name, shown)
    };
    let mut all: BTreeMap<_, _> = names.into_iter().map(shown_plain).collect();
    for template in app.store.templates().await.map_err(problem)? {
        if template.owner == OWNER {
            all.insert(template.template_id.to_string(), shown(app, &template));
        }
    }
    Ok(all)
}

/// What sandboxes can be made from.
pub(super) async fn list(State(app): State<Adapter>) -> Result<axum::Json<Vec<Value>>, E2bRefusal> {
    Ok(axum::Json(all(&app).await?.into_values().collect()))
}

/// A page of the same.
pub(super) async fn page(
    State(app): State<Adapter>,
    Query(page): Query<TemplatePageQuery>,
) -> Result<Response, E2bRefusal> {
    let limit = page.limit.unwrap_or(PAGE);
    if !(1..=PAGE).contains(&limit) {
        return Err(bad(format!("limit must be 1 to {PAGE}")));
    }
    let after = page.next_token.unwrap_or_default();
    let all = all(&app).await?;
    let mut rest = all.into_iter().skip_while(|(id, _)| !after.is_empty() && *id <= after);
    let found: Vec<(String, Value)> = rest.by_ref().take(limit).collect();
    let next = rest.next().and(found.last()).and_then(|(id, _)| HeaderValue::from_str(id).ok());
    let found: Vec<_> = found.into_iter().map(|(_, shown)| shown).collect();
    let mut response = axum::Json(found).into_response();
    if let Some(next) = next {
        response.headers_mut().insert("x-next-token", next);
    }
    Ok(response)
}

/// A template with its builds, the youngest first.
pub(super) async fn show(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let template = find(&app, &name).await?;
    let size = SandboxSize::default_size(&app);
    let builds = template.builds.iter().rev().map(|build| {
        let mut shown = json!({
            "buildID": build.build_id,
            "status": build.status.word(),
            "createdAt": build.created_at.to_string(),
            "updatedAt": build.updated_at.to_string(),
            "cpuCount": size.cpus,
            "memoryMB": size.memory >> 20,
            "diskSizeMB": size.disk >> 20,
            "envdVersion": ENVD,
        });
        if build.status.is_end() {
            shown["finishedAt"] = json!(build.updated_at.to_string());
        }
        shown
    });
    let mut body = shown(&app, &template);
    body["builds"] = builds.collect();
    Ok(axum::Json(body))
}

/// Everything here is its owner's alone; that is noted nowhere.
pub(super) async fn update(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let template = find(&app, &name).await?;
    Ok(axum::Json(json!({"names": [template.name]})))
}

/// Whether a template of this name is there.
pub(super) async fn alias(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let (plain, tag) = split_tag(&name);
    if let Some(template) = app.store.template(OWNER, plain).await.map_err(problem)? {
        if tag.is_some_and(|tag| tag != USUAL_TAG && template.tagged(tag).is_none()) {
            return Err(missing(&name));
        }
        return Ok(axum::Json(json!({"templateID": template.template_id, "public": false})));
    }
    let plain = name.strip_suffix(TAG).unwrap_or(&name);
    if is_of_build(plain) || !all(&app).await?.contains_key(plain) {
        return Err(missing(&name));
    }
    Ok(axum::Json(json!({"templateID": plain, "public": false})))
}

/// Removes a template or a snapshot. What began with it keeps its files.
pub(super) async fn remove(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<StatusCode, E2bRefusal> {
    let plain = name.strip_suffix(TAG).unwrap_or(&name);
    let removed = match app.store.template(OWNER, plain).await.map_err(problem)? {
        Some(template) => app.delete_template(&template).await?,
        None => !is_of_build(plain) && app.remove_snapshot(plain).await?,
    };
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(missing(&name)) }
}

/// Tags of a template.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tags {
    target: String,
    name: String,
    tags: Vec<String>,
}

/// Makes tags point to the build that another one points to.
pub(super) async fn tag(
    State(app): State<Adapter>,
    E2bJson(asked): E2bJson<Tags>,
) -> Result<Response, E2bRefusal> {
    let tags = checked_tags(asked.tags)?;
    if tags.is_empty() {
        return Err(bad("no tags are named"));
    }
    let (name, from) = split_tag(&asked.target);
    let (template, from) = (find(&app, name).await?, from.unwrap_or(USUAL_TAG).to_owned());
    let (now, wanted, tag) = (app.now().at, tags.clone(), from.clone());
    let changed = app.store.change_template(&template.template_id, move |template| {
        let build_id = template.tags.get(&from)?.build_id.clone();
        for tag in wanted {
            template.tags.insert(tag, Tag { build_id: build_id.clone(), at: now });
        }
        Some(build_id)
    });
    let absent = || {
        let message = format!("tag '{tag}' of template '{name}' not found");
        E2bRefusal::new(StatusCode::NOT_FOUND, message)
    };
    let build = changed.await.map_err(problem)?.flatten().ok_or_else(absent)?;
    app.sweep_builds().await;
    Ok((StatusCode::CREATED, axum::Json(json!({"tags": tags, "buildID": build}))).into_response())
}

/// Takes tags from a template.
pub(super) async fn untag(
    State(app): State<Adapter>,
    E2bJson(asked): E2bJson<Tags>,
) -> Result<StatusCode, E2bRefusal> {
    if asked.tags.iter().any(|tag| tag == USUAL_TAG) {
        return Err(bad(format!("the tag '{USUAL_TAG}' cannot be removed; delete the template")));
    }
    let template = find(&app, split_tag(&asked.name).0).await?;
    let tags = asked.tags;
    let changed = app.store.change_template(&template.template_id, move |template| {
        template.tags.retain(|tag, _| !tags.contains(tag));
    });
    changed.await.map_err(problem)?;
    app.sweep_builds().await;
    Ok(StatusCode::NO_CONTENT)
}

/// The tags of a template.
pub(super) async fn tags(
    State(app): State<Adapter>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let template = find(&app, split_tag(&name).0).await?;
    let mut tags: Vec<_> = template.tags.iter().collect();
    tags.sort_by_key(|(_, tag)| std::cmp::Reverse(tag.at));
    let shown = |(name, tag): (&String, &Tag)| json!({"tag": name, "buildID": tag.build_id, "createdAt": tag.at.to_string()});
    Ok(axum::Json(tags.into_iter().map(shown).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_or_refused_by_number() {
        let plan = |body: Value| serde_json::from_value::<Begin>(body).unwrap().plan();
        let read = plan(json!({
            "fromImage": "e2bdev/base",
            "steps": [
                {"type": "RUN", "args": ["true", "root"], "force": true},
                {"type": "ENV", "args": ["A", "1", "B", "2"]},
                {"type": "COPY", "args": ["a", "/b", "", "0755"], "filesHash": "abc"},
            ],
            "startCmd": "serve",
            "readyCmd": "",
        }));
        let read = read.unwrap();
        assert_eq!(read.base, Base::Image("e2bdev/base".to_owned()));
        assert_eq!((read.start.as_deref(), read.ready.as_deref()), (Some("serve"), None));
        let Step::Copy(copy) = &read.steps[2] else { panic!("{read:?}") };
        assert_eq!((copy.owner.as_deref(), copy.mode.as_deref()), (None, Some("0755")));
        let check = |step: Value, expected: &str| {
            let said = plan(json!({"steps": [{"type": "RUN", "args": ["true"]}, step]}));
            assert_eq!(said.unwrap_err(), format!("step 2: {expected}"));
        };
        check(json!({"type": "RUN", "args": []}), "RUN needs 1 words");
        check(json!({"type": "COPY", "args": ["a", "b"]}), "COPY names no files that were sent");
        check(json!({"type": "ENV", "args": ["A"]}), "ENV needs names and values");
        check(json!({"type": "VOLUME", "args": ["A"]}), "VOLUME is no step of a build");
        let many: Vec<_> =
            (0..=MAX_STEPS).map(|_| json!({"type": "USER", "args": ["a"]})).collect();
        assert!(plan(json!({"steps": many})).is_err());
    }

    #[test]
    fn names_and_paths_of_files() {
        assert_eq!(checked_name("My-Team/App_1.x").unwrap(), "my-team/app_1.x");
        for bad in ["", "a b", "a/b/c", "/a", "a/", "ä"] {
            assert!(checked_name(bad).is_err(), "{bad}");
        }
        assert_eq!(uploaded("/templates/t/files/abc"), Some("abc"));
        for other in
            ["/templates/t/files/a/b", "/templates/files/a", "/files", "/templates/a/b/files/c"]
        {
            assert_eq!(uploaded(other), None, "{other}");
        }
    }
}
