//! Volumes: creation, listing, mounting in new sandboxes, and removal while no sandbox uses them.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::new_sandbox::NewSandbox;
use crate::Adapter;
use api::error::{Code, Problem};
use base::lock::locked;
use base::outbound::bounded;
use machine::volume::{Volume, VolumeError, VolumeMount, Volumes};
use store::{LeaseFilter, PageRequest};

/// The setting of a lease that names its volumes.
const SETTING: &str = "volumes";

/// How long the disk may take to create, list or remove volumes: somewhat longer than `mkfs.ext4` may take.
const VOLUME_TIMEOUT: Duration = Duration::from_secs(150);

/// The lock that the start of a sandbox with volumes and the removal of a volume wait for.
const MOUNTING: &str = "the list of volumes in use";
const MOUNTING_WAIT: Duration = Duration::from_secs(30);

/// A request that names a new volume.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeName {
    pub name: String,
    /// The size in bytes, an extension of ours; the default is the setting `volume.size`.
    pub size: Option<u64>,
}

impl Adapter {
    /// Runs a blocking operation on the volumes. One that is not over in time continues.
    async fn with_volumes<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Volumes) -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<T, Problem> {
        let volumes = self.state.volumes.clone();
        let running = base::task::blocking(move || operation(&volumes));
        let result = bounded("volumes", VOLUME_TIMEOUT, running).await.map_err(|late| {
            let detail = format!("{late}; check the disk of the server's home directory");
            Problem::new(Code::StoreUnavailable, detail)
        })?;
        Ok(result.map_err(|error| Problem::internal("access the volumes", &error))??)
    }

    /// Every volume, by name.
    pub async fn volumes(&self) -> Result<Vec<Volume>, Problem> {
        self.with_volumes(Volumes::all).await
    }

    /// The volume with this id or name.
    pub async fn volume(&self, name: &str) -> Result<Option<Volume>, Problem> {
        let name = name.to_owned();
        self.with_volumes(move |volumes| volumes.find(&name)).await
    }

    /// Creates a volume. A server that cannot bound volumes creates one without a size, unless a size was requested.
    pub async fn create_volume(&self, new: VolumeName) -> Result<Volume, Problem> {
        let default = Some(self.settings.volume.size).filter(|bytes| *bytes > 0);
        let default = default.filter(|_| rustix::process::geteuid().is_root());
        let VolumeName { name, size } = new;
        self.with_volumes(move |volumes| volumes.create(&name, size.or(default))).await
    }

    /// Removes a volume with its content, unless a sandbox uses it. Returns `false` if it does not exist.
    pub async fn remove_volume(&self, id: &str) -> Result<bool, Problem> {
        // Locks out the creation of sandboxes that mount this volume.
        let _lock = locked(MOUNTING, MOUNTING_WAIT, self.state.mounting.write()).await?;
        let mut page = PageRequest::first(1000);
        loop {
            let leases = self.store.leases(LeaseFilter::default(), page.clone()).await?;
            let uses_it = |lease: &model::Lease| {
                let all = lease.spec[SETTING].as_array();
                all.is_some_and(|all| all.iter().any(|mounted| mounted["id"] == *id))
            };
            if leases.items.iter().any(uses_it) {
                let detail = "the volume is in use by a sandbox; delete the sandbox first";
                return Err(Problem::new(Code::Conflict, detail));
            }
            match leases.next {
                Some(next) => page.after = Some(next),
                None => break,
            }
        }
        let id = id.to_owned();
        self.with_volumes(move |volumes| volumes.remove(&id)).await
    }

    /// Adds volumes to the settings of a new sandbox. Each mount names its volume by id or name.
    pub async fn mount_volumes(
        &self,
        settings: &mut Map<String, Value>,
        requested: Vec<VolumeMount>,
    ) -> Result<(), Problem> {
        let mut mounts = Vec::new();
        for mut mounted in requested {
            let found = self.volume(&mounted.id).await?;
            let missing = || Problem::new(Code::NotFound, format!("no volume {}", mounted.id));
            mounted.id = found.ok_or_else(missing)?.id;
            mounted.check().map_err(|reason| Problem::new(Code::InvalidRequest, reason))?;
            mounts.push(mounted);
        }
        if !mounts.is_empty() {
            settings.insert(SETTING.to_owned(), json!(mounts));
        }
        Ok(())
    }

    /// Locks volumes against removal until the sandbox that mounts them is recorded.
    pub async fn lock_volumes(
        &self,
        new: &NewSandbox,
    ) -> Result<Option<tokio::sync::RwLockReadGuard<'_, ()>>, Problem> {
        let Some(mounts) = new.settings.get(SETTING).and_then(Value::as_array) else {
            return Ok(None);
        };
        let guard = locked(MOUNTING, MOUNTING_WAIT, self.state.mounting.read()).await?;
        for mounted in mounts {
            let id = mounted["id"].as_str().unwrap_or_default();
            if self.volume(id).await?.is_none() {
                return Err(Problem::new(Code::NotFound, format!("no volume {id}")));
            }
        }
        Ok(Some(guard))
    }
}

/// The volume mounts in a lease's settings.
pub fn mounts(spec: &Value) -> Vec<VolumeMount> {
    serde_json::from_value(spec[SETTING].clone()).unwrap_or_default()
}
