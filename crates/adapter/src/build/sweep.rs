//! Removes the leftovers of deleted, replaced and interrupted builds.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    image::uploaded,
    log::Level,
    template::{SNAPSHOT_PREFIX, is_of_build},
    upload,
};
use crate::{Adapter, origin::IMAGE_ORIGIN};
use api::error::Problem;
use model::{BuildEvent, BuildStatus, Failure, Template};
use store::{SandboxFilter, SandboxPurpose, SandboxRecord};

impl Adapter {
    /// Deletes a template with its builds. Sandboxes created from it keep their files.
    pub async fn delete_template(&self, template: &Template) -> Result<bool, Problem> {
        let removed = self.store.remove_template(&template.template_id).await?;
        for build in &template.builds {
            if let Some(live) = self.state.builds.running().get(&build.build_id) {
                live.stop.cancel();
            }
        }
        self.sweep_builds().await;
        Ok(removed)
    }

    /// Marks the builds that a crash interrupted as failed, and removes their leftovers.
    pub async fn recover_builds(&self) -> Result<(), Problem> {
        for template in self.store.templates().await? {
            for build in &template.builds {
                let is_live = self.state.builds.lines(&build.build_id).is_some();
                if build.status != BuildStatus::Building || is_live {
                    continue;
                }
                let id = &build.build_id;
                if template.owner == IMAGE_ORIGIN {
                    upload::remove(&self.settings.home, &uploaded(id));
                }
                let last = self.build_log(id, 0, usize::MAX, Level::Debug).await?;
                let step = last.last().and_then(|line| line.step.clone());
                let message =
                    "the server stopped during the build; start the build again".to_owned();
                let failure = Failure { message, step };
                let event = BuildEvent::Fail(failure);
                if let Err(problem) =
                    self.record_build_event(&template.template_id, id, event).await
                {
                    tracing::warn!(build = %id, detail = problem.detail(), "cannot mark a build as failed");
                }
            }
        }
        if let Err(error) = upload::clean(&self.settings.home) {
            tracing::warn!(%error, "cannot remove incomplete uploads of builds");
        }
        self.sweep_builds().await;
        Ok(())
    }

    /// Removes sandboxes, snapshots and logs that no build needs. A failed removal is repeated by the next call.
    pub async fn sweep_builds(&self) {
        if let Err(problem) = self.try_sweep_builds().await {
            tracing::warn!(detail = problem.detail(), "cannot remove the leftovers of builds");
        }
    }

    async fn try_sweep_builds(&self) -> Result<(), Problem> {
        // The order matters: first the artifacts are listed, then the running builds, then the rows. A build is
        // listed as running before it creates an artifact, and its row is ready before it stops being listed.
        let snapshots: Vec<_> =
            self.snapshots().await?.into_keys().filter(|it| is_of_build(it)).collect();
        let mut sandboxes = Vec::new();
        let filter = SandboxFilter { purpose: SandboxPurpose::Build, ..SandboxFilter::default() };
        for SandboxRecord { row, .. } in self.sandboxes.all(filter).await? {
            if let Some(build) = row.build_id {
                sandboxes.push((row.thread_id, build.to_string()));
            }
        }
        let logs = logs(&self.settings.home).unwrap_or_default();
        let running: BTreeSet<String> =
            self.state.builds.running().keys().map(ToString::to_string).collect();
        let templates = self.store.templates().await?;
        let in_use: BTreeSet<String> = templates
            .iter()
            .flat_map(Template::in_use)
            .map(|build| build.build_id.to_string())
            .collect();
        let known: BTreeSet<&str> =
            templates.iter().flat_map(|it| &it.builds).map(|it| it.build_id.as_str()).collect();
        for (id, _) in sandboxes.into_iter().filter(|(_, build)| !running.contains(build)) {
            self.delete_sandbox(&id).await?;
        }
        for name in snapshots {
            let build = &name[SNAPSHOT_PREFIX.len()..];
            if !running.contains(build) && !in_use.contains(build) {
                self.remove_snapshot(&name).await?;
            }
        }
        for (build, path) in logs {
            if !running.contains(&build) && !known.contains(build.as_str()) {
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }
}

/// The log files with the ids of their builds.
fn logs(home: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(home.join("builds"))?.flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        if let Some(build) = name.strip_suffix(".log") {
            found.push((build.to_owned(), entry.path()));
        }
    }
    Ok(found)
}
