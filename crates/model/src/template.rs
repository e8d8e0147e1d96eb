//! What sandboxes of other people's APIs are made from: a template, its builds, and the tags that point
//! to them.
//!
//! ```text
//!   waiting ─start─▶ building ─finish─▶ ready ◀─ tags
//!      └──────fail──────┴──────fail──▶ failed
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{BuildId, Env, Refused, TemplateId, ThreadId, Timestamp};

/// The tag of a build that was asked for without any.
pub const USUAL_TAG: &str = "default";
/// How many builds of a template are kept; the oldest without a tag are removed first.
const MAX_BUILDS: usize = 20;

/// A name, and what was built under it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Template {
    pub template_id: TemplateId,
    /// Whose API it belongs to; names are unique there.
    pub owner: String,
    pub name: String,
    /// When it was first asked for.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// The latest last.
    pub builds: Vec<Build>,
    /// Which build each tag points to.
    pub tags: BTreeMap<String, Tag>,
}

/// What a tag points to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tag {
    pub build_id: BuildId,
    pub at: Timestamp,
}

/// One making of a template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Build {
    pub build_id: BuildId,
    /// How far it is.
    pub status: BuildStatus,
    /// The tags that point to it once it is ready.
    pub wanted: Vec<String>,
    /// What it was made from, where that is a text.
    #[serde(default)]
    pub source: Option<String>,
    /// The sandbox that waits for it.
    #[serde(default)]
    pub waiter: Option<Waiter>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// A sandbox that is made once a build is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    pub thread_id: ThreadId,
    /// What its client calls it.
    pub name: String,
}

/// How far a build is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BuildStatus {
    /// For its files and for being started.
    Waiting,
    /// Its steps run.
    Building,
    /// Sandboxes can be made from it.
    Ready(Made),
    /// It never will be ready.
    Failed(Failure),
}

/// What a sandbox gets of a template beside the files.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Made {
    /// What its programs have in their environment.
    pub env: Env,
    /// Where they start.
    pub cwd: Option<String>,
    /// Who they are.
    pub user: Option<String>,
    /// What is started with it.
    pub start: Option<String>,
    /// What succeeds once that is ready.
    pub ready: Option<String>,
}

/// Why a build failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    pub message: String,
    /// The step, as clients count them.
    pub step: Option<String>,
}

/// What happens to a build.
#[derive(Debug, Clone, PartialEq)]
pub enum BuildEvent {
    /// Its steps begin.
    Start,
    /// They went well, and its files are kept.
    Finish(Made),
    /// They did not, or it was given up.
    Fail(Failure),
}

impl BuildEvent {
    fn word(&self) -> &'static str {
        match self {
            BuildEvent::Start => "be started",
            BuildEvent::Finish(_) => "finish",
            BuildEvent::Fail(_) => "fail",
        }
    }
}

impl BuildStatus {
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            BuildStatus::Waiting => "waiting",
            BuildStatus::Building => "building",
            BuildStatus::Ready(_) => "ready",
            BuildStatus::Failed(_) => "error",
        }
    }

    /// Whether nothing happens to it any more.
    #[must_use]
    pub fn is_end(&self) -> bool {
        matches!(self, BuildStatus::Ready(_) | BuildStatus::Failed(_))
    }
}

impl Build {
    /// One that waits.
    #[must_use]
    pub fn new(build_id: BuildId, wanted: Vec<String>, at: Timestamp) -> Build {
        let status = BuildStatus::Waiting;
        let (source, waiter) = (None, None);
        Build { build_id, status, wanted, source, waiter, created_at: at, updated_at: at }
    }

    /// What sandboxes get of it, if it is ready.
    #[must_use]
    pub fn made(&self) -> Option<&Made> {
        match &self.status {
            BuildStatus::Ready(made) => Some(made),
            BuildStatus::Waiting | BuildStatus::Building | BuildStatus::Failed(_) => None,
        }
    }
}

impl Template {
    /// One without builds.
    #[must_use]
    pub fn new(template_id: TemplateId, owner: &str, name: &str, at: Timestamp) -> Template {
        Template {
            template_id,
            owner: owner.to_owned(),
            name: name.to_owned(),
            created_at: at,
            updated_at: at,
            builds: vec![],
            tags: BTreeMap::new(),
        }
    }

    /// A build of it.
    #[must_use]
    pub fn build(&self, id: &str) -> Option<&Build> {
        self.builds.iter().find(|build| build.build_id.as_str() == id)
    }

    /// The build that a tag points to.
    #[must_use]
    pub fn tagged(&self, tag: &str) -> Option<&Build> {
        self.build(self.tags.get(tag)?.build_id.as_str())
    }

    /// The builds that sandboxes can be made from.
    pub fn in_use(&self) -> impl Iterator<Item = &Build> {
        let tagged: BTreeSet<&BuildId> = self.tags.values().map(|tag| &tag.build_id).collect();
        let takes =
            move |build: &&Build| build.made().is_some() && tagged.contains(&build.build_id);
        self.builds.iter().filter(takes)
    }

    /// Adds a build. Old ones that have ended and that no tag points to are forgotten for it.
    pub fn add(&mut self, build: Build) {
        self.updated_at = build.created_at;
        self.builds.push(build);
        while self.builds.len() > MAX_BUILDS {
            let tagged =
                |build: &Build| self.tags.values().any(|tag| tag.build_id == build.build_id);
            let unused = |build: &Build| build.status.is_end() && !tagged(build);
            let Some(at) = self.builds.iter().position(unused) else { return };
            self.builds.remove(at);
        }
    }

    /// The template after something happened to one of its builds. The tags of one that becomes ready
    /// point to it from then on.
    pub fn apply(
        &self,
        build: &BuildId,
        event: BuildEvent,
        at: Timestamp,
    ) -> Result<Template, Refused> {
        let mut next = self.clone();
        let found = next.builds.iter_mut().find(|it| it.build_id == *build);
        let refused = |state| {
            let noun = format!("build {build}");
            Err(Refused { noun, state, event: event.word() })
        };
        let Some(found) = found else { return refused("not there") };
        let status = match (&found.status, &event) {
            (BuildStatus::Waiting, BuildEvent::Start) => BuildStatus::Building,
            (BuildStatus::Building, BuildEvent::Finish(made)) => BuildStatus::Ready(made.clone()),
            (BuildStatus::Waiting | BuildStatus::Building, BuildEvent::Fail(why)) => {
                BuildStatus::Failed(why.clone())
            }
            (other, _) => return refused(other.word()),
        };
        if let BuildStatus::Ready(_) = status {
            for tag in &found.wanted {
                next.tags.insert(tag.clone(), Tag { build_id: build.clone(), at });
            }
        }
        found.status = status;
        found.updated_at = at;
        next.updated_at = at;
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn template(builds: usize) -> Template {
        let at = Timestamp::UNIX_EPOCH;
        let mut template = Template::new("t".parse().unwrap(), "e2b", "n", at);
        for number in 0..builds {
            let id = format!("b{number}").parse().unwrap();
            template.add(Build::new(id, vec![USUAL_TAG.to_owned()], at));
        }
        template
    }

    fn event(number: u8) -> BuildEvent {
        match number % 3 {
            0 => BuildEvent::Start,
            1 => BuildEvent::Finish(Made::default()),
            _ => BuildEvent::Fail(Failure { message: "no".to_owned(), step: None }),
        }
    }

    proptest! {
        #[test]
        fn an_end_is_an_end_and_tags_point_to_what_is_ready(
            events in prop::collection::vec((0_usize..3, 0_u8..3), 0..30),
        ) {
            let mut template = template(3);
            for (build, number) in events {
                let id = template.builds[build].build_id.clone();
                let ended = template.builds[build].status.is_end();
                match template.apply(&id, event(number), Timestamp::UNIX_EPOCH) {
                    Ok(next) => {
                        prop_assert!(!ended);
                        template = next;
                    }
                    Err(refused) => prop_assert!(refused.noun.contains(id.as_str())),
                }
                for tag in template.tags.keys() {
                    prop_assert!(template.tagged(tag).is_some_and(|build| build.made().is_some()));
                }
            }
        }
    }

    #[test]
    fn builds_that_nobody_can_reach_are_forgotten_first() {
        let mut template = template(1);
        for what in [0, 1] {
            let id = template.builds[0].build_id.clone();
            template = template.apply(&id, event(what), Timestamp::UNIX_EPOCH).unwrap();
        }
        for number in 0..2 * MAX_BUILDS {
            let id: BuildId = format!("later{number}").parse().unwrap();
            template.add(Build::new(id.clone(), vec![], Timestamp::UNIX_EPOCH));
            template = template.apply(&id, event(2), Timestamp::UNIX_EPOCH).unwrap();
        }
        assert_eq!(template.builds.len(), MAX_BUILDS);
        assert!(template.tagged(USUAL_TAG).is_some(), "the one that a tag points to is kept");
        assert_eq!(template.in_use().count(), 1);
    }
}
