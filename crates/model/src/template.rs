//! Templates of compatible APIs, from which sandboxes are created, with their builds and the tags that
//! point to them.
//!
//! ```text
//!   waiting ─start─▶ building ─finish─▶ ready ◀─ tags
//!      └──────fail──────┴──────fail──▶ failed
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{BuildId, Env, Refused, TemplateId, ThreadId, Timestamp};

/// The tag of a build that was requested without tags.
pub const USUAL_TAG: &str = "default";
/// How many builds of a template are kept; the oldest without a tag are removed first.
const MAX_BUILDS: usize = 20;

/// A named template with its builds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Template {
    pub template_id: TemplateId,
    /// The API of the template; names are unique within it.
    pub owner: String,
    pub name: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// In order of creation.
    pub builds: Vec<Build>,
    /// The tags by name.
    pub tags: BTreeMap<String, Tag>,
}

/// A tag, which points to a build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tag {
    pub build_id: BuildId,
    pub at: Timestamp,
}

/// One build of a template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Build {
    pub build_id: BuildId,
    pub status: BuildStatus,
    /// The tags that point to the build once it is ready.
    pub wanted: Vec<String>,
    /// The source of the build, if it is text.
    #[serde(default)]
    pub source: Option<String>,
    /// The sandbox that waits for the build.
    #[serde(default)]
    pub waiter: Option<Waiter>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A sandbox that is created once a build is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    pub thread_id: ThreadId,
    /// The name that the client chose.
    pub name: String,
}

/// The state of a build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BuildStatus {
    /// Waits for its files and its start.
    Waiting,
    /// Its steps are running.
    Building,
    /// Sandboxes can be created from it.
    Ready(Made),
    /// It ended with an error.
    Failed(Failure),
}

/// The settings that a sandbox gets from a template, in addition to the files.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Made {
    /// The environment of its programs.
    pub env: Env,
    /// The working directory of its programs.
    pub cwd: Option<String>,
    /// The user that its programs run as.
    pub user: Option<String>,
    /// The start command.
    pub start: Option<String>,
    /// A command that succeeds once the start command is ready.
    pub ready: Option<String>,
}

/// Why a build failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    pub message: String,
    /// The number of the step, as clients count them.
    pub step: Option<String>,
}

/// A state change of a build.
#[derive(Debug, Clone, PartialEq)]
pub enum BuildEvent {
    /// The first step starts.
    Start,
    /// All steps succeeded, and the files are stored.
    Finish(Made),
    /// A step failed, or the build was abandoned.
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

    /// Returns whether the status is final.
    #[must_use]
    pub fn is_end(&self) -> bool {
        matches!(self, BuildStatus::Ready(_) | BuildStatus::Failed(_))
    }
}

impl Build {
    /// Returns a waiting build.
    #[must_use]
    pub fn new(build_id: BuildId, wanted: Vec<String>, at: Timestamp) -> Build {
        let status = BuildStatus::Waiting;
        let (source, waiter) = (None, None);
        Build { build_id, status, wanted, source, waiter, created_at: at, updated_at: at }
    }

    /// Returns the settings for sandboxes, if the build is ready.
    #[must_use]
    pub fn made(&self) -> Option<&Made> {
        match &self.status {
            BuildStatus::Ready(made) => Some(made),
            BuildStatus::Waiting | BuildStatus::Building | BuildStatus::Failed(_) => None,
        }
    }
}

impl Template {
    /// Returns a template without builds.
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

    /// Returns the build with an id.
    #[must_use]
    pub fn build(&self, id: &str) -> Option<&Build> {
        self.builds.iter().find(|build| build.build_id.as_str() == id)
    }

    /// Returns the build that a tag points to.
    #[must_use]
    pub fn tagged(&self, tag: &str) -> Option<&Build> {
        self.build(self.tags.get(tag)?.build_id.as_str())
    }

    /// Returns the builds that sandboxes can be created from.
    pub fn in_use(&self) -> impl Iterator<Item = &Build> {
        let tagged: BTreeSet<&BuildId> = self.tags.values().map(|tag| &tag.build_id).collect();
        let takes =
            move |build: &&Build| build.made().is_some() && tagged.contains(&build.build_id);
        self.builds.iter().filter(takes)
    }

    /// Adds a build, and removes the oldest ended builds without a tag.
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

    /// Returns the template after an event of one of its builds. When a build becomes ready, its tags
    /// point to it.
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
        let Some(found) = found else { return refused("missing") };
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
        fn an_end_is_final_and_tags_point_to_ready_builds(
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
    fn the_oldest_builds_without_a_tag_are_removed_first() {
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
        assert!(template.tagged(USUAL_TAG).is_some(), "the tagged build is kept");
        assert_eq!(template.in_use().count(), 1);
    }
}
