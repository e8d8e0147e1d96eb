//! Builds of templates: a request, and then its steps.

use std::collections::BTreeSet;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::json;

use super::lookup::{BASE, checked_name, checked_tags, find_build};
use crate::e2b::{E2bApi, E2bJson, E2bRefusal, bad};
use adapter::{
    Adapter,
    build::{
        plan::{Base, CopiedArchives, CopyFrom, CopyStep, MAX_SOURCE_BYTES, MAX_STEPS, Plan, Step},
        split_tag,
    },
    vendor::{self, VendorApi},
};
use model::{Build, USUAL_TAG};

/// A request for a build.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::e2b) struct TemplateRequest {
    name: Option<String>,
    alias: Option<String>,
    tags: Option<Vec<String>>,
}

/// Records a build. Its files and its steps are sent later.
pub(in crate::e2b) async fn request(
    State(app): State<Adapter>,
    E2bJson(body): E2bJson<TemplateRequest>,
) -> Result<Response, E2bRefusal> {
    let name = body.name.or(body.alias).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| bad("a template needs a name"))?;
    let (name, tag) = split_tag(&name);
    let name = checked_name(name)?;
    if name == BASE || app.leases.providers().named(&name).is_ok() {
        return Err(E2bRefusal::new(
            StatusCode::CONFLICT,
            format!("'{name}' is reserved by the server"),
        ));
    }
    let mut tags: Vec<String> = tag.map(str::to_owned).into_iter().collect();
    tags.extend(body.tags.unwrap_or_default());
    if tags.is_empty() {
        tags.push(USUAL_TAG.to_owned());
    }
    let mut unique = BTreeSet::new();
    tags.retain(|tag| unique.insert(tag.clone()));
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

/// The steps of a build.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::e2b) struct StartBuild {
    from_image: Option<String>,
    from_template: Option<String>,
    steps: Vec<StepRequest>,
    start_cmd: Option<String>,
    ready_cmd: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StepRequest {
    #[serde(rename = "type")]
    kind: String,
    args: Vec<String>,
    files_hash: Option<String>,
}

impl StepRequest {
    fn step(self) -> Result<Step, String> {
        let StepRequest { kind, args, files_hash } = self;
        let given = |index: usize| args.get(index).filter(|word| !word.is_empty()).cloned();
        let required =
            |index: usize| given(index).ok_or(format!("{kind}: argument {} is missing", index + 1));
        Ok(match kind.to_ascii_uppercase().as_str() {
            "RUN" => Step::Run { command: required(0)?, user: given(1) },
            "WORKDIR" => Step::Workdir(required(0)?),
            "USER" => Step::User(required(0)?),
            "ENV" if args.len().is_multiple_of(2) => {
                let pairs = args.chunks_exact(2);
                Step::Env(pairs.map(|pair| (pair[0].clone(), pair[1].clone())).collect())
            }
            "ENV" => return Err("ENV needs names and values".to_owned()),
            "ARG" => Step::Arg(required(0)?, given(1).unwrap_or_default()),
            "COPY" | "ADD" => Step::Copy(CopyStep {
                from: CopyFrom::Upload(
                    files_hash.ok_or(format!("{kind} names no uploaded files"))?,
                ),
                source: required(0)?,
                target: required(1)?,
                owner: given(2),
                mode: given(3),
                archives: CopiedArchives::Keep,
            }),
            _ => return Err(format!("{kind} is not supported")),
        })
    }
}

impl StartBuild {
    fn plan(self) -> Result<Plan, String> {
        let bytes = self.steps.iter().flat_map(|step| &step.args).map(String::len).sum::<usize>();
        if self.steps.len() > MAX_STEPS || bytes > MAX_SOURCE_BYTES {
            return Err(format!(
                "a build may have up to {MAX_STEPS} steps and {MAX_SOURCE_BYTES} bytes of arguments"
            ));
        }
        let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
        let base = match (non_empty(self.from_template), non_empty(self.from_image)) {
            (Some(template), _) => Base::Template(template),
            (None, Some(image)) => Base::Image(image),
            (None, None) => Base::Template(BASE.to_owned()),
        };
        let mut steps = Vec::with_capacity(self.steps.len());
        for (index, step) in self.steps.into_iter().enumerate() {
            let step = step.step().map_err(|reason| format!("step {}: {reason}", index + 1))?;
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
            lines: vec![],
            start: non_empty(self.start_cmd),
            ready: non_empty(self.ready_cmd),
            remarks: vec![],
        })
    }
}

/// Starts a requested build with its steps.
pub(in crate::e2b) async fn start(
    State(app): State<Adapter>,
    Path((name, build)): Path<(String, String)>,
    E2bJson(request): E2bJson<StartBuild>,
) -> Result<StatusCode, E2bRefusal> {
    let (template, build) = find_build(&app, &name, &build).await?;
    let plan = request.plan().map_err(bad)?;
    app.start_build(&E2bApi, &template.template_id, &build.build_id, plan, None).await?;
    Ok(StatusCode::ACCEPTED)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn steps_are_parsed_or_refused_with_their_number() {
        let plan = |body: Value| serde_json::from_value::<StartBuild>(body).unwrap().plan();
        let parsed = plan(json!({
            "fromImage": "e2bdev/base",
            "steps": [
                {"type": "RUN", "args": ["true", "root"], "force": true},
                {"type": "ENV", "args": ["A", "1", "B", "2"]},
                {"type": "COPY", "args": ["a", "/b", "", "0755"], "filesHash": "abc"},
            ],
            "startCmd": "serve",
            "readyCmd": "",
        }));
        let parsed = parsed.unwrap();
        assert_eq!(parsed.base, Base::Image("e2bdev/base".to_owned()));
        assert_eq!((parsed.start.as_deref(), parsed.ready.as_deref()), (Some("serve"), None));
        let Step::Copy(copy) = &parsed.steps[2] else { panic!("{parsed:?}") };
        assert_eq!((copy.owner.as_deref(), copy.mode.as_deref()), (None, Some("0755")));
        let check = |step: Value, expected: &str| {
            let refused = plan(json!({"steps": [{"type": "RUN", "args": ["true"]}, step]}));
            assert_eq!(refused.unwrap_err(), format!("step 2: {expected}"));
        };
        check(json!({"type": "RUN", "args": []}), "RUN: argument 1 is missing");
        check(json!({"type": "COPY", "args": ["a", "b"]}), "COPY names no uploaded files");
        check(json!({"type": "ENV", "args": ["A"]}), "ENV needs names and values");
        check(json!({"type": "VOLUME", "args": ["A"]}), "VOLUME is not supported");
        let many: Vec<_> =
            (0..=MAX_STEPS).map(|_| json!({"type": "USER", "args": ["a"]})).collect();
        assert!(plan(json!({"steps": many})).is_err());
    }
}
