//! What the result of a build becomes: a snapshot for the sandboxes of a vendor's API, or an image.

use std::{collections::BTreeSet, time::Duration};

use super::{
    dockerfile::{BuildStage, ImageRecord},
    template::snapshot_of,
};
use crate::vendor::VendorApi;
use machine::ImageReference;
use model::{BuildId, Failure, ThreadId};

pub(super) const BUILD_TIMEOUT: Duration = Duration::from_secs(60 * 60);

pub(super) enum BuildTarget {
    /// A snapshot, from which the sandboxes of this API are created.
    Template(&'static dyn VendorApi),
    Image(Box<ImageTarget>),
}

/// The image that a build makes.
pub(super) struct ImageTarget {
    pub(super) reference: ImageReference,
    pub(super) record: ImageRecord,
    /// The stages before the last, and those of them that are built.
    pub(super) stages: Vec<BuildStage>,
    pub(super) needed: BTreeSet<usize>,
    /// The hash of the uploaded files.
    pub(super) files: String,
}

pub(super) fn failed(message: impl Into<String>) -> Failure {
    Failure { message: message.into(), step: None }
}

/// The sandbox that the steps of a build run in.
pub(super) fn sandbox_of(build: &BuildId) -> ThreadId {
    snapshot_of(build).parse().expect("a uuid is an id")
}

/// The sandbox of a stage before the last.
pub(super) fn sandbox_of_stage(build: &BuildId, at: usize) -> ThreadId {
    format!("{}-{at}", snapshot_of(build)).parse().expect("a uuid and a number are an id")
}
