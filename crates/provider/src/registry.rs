//! The registry of providers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::bounded::Bounded;
use super::error::ProviderError;
use super::instance::Snapshot;
use super::traits::Provider;

/// The providers of this server, by name.
#[derive(Debug, Clone, Default)]
pub struct Providers {
    by_name: Arc<BTreeMap<String, Arc<dyn Provider>>>,
    absent: Arc<BTreeMap<String, Vec<String>>>,
}

impl Providers {
    /// Registers providers, and gives each of their calls a deadline.
    #[must_use]
    pub fn new(providers: impl IntoIterator<Item = Arc<dyn Provider>>) -> Self {
        let named = providers.into_iter().map(|provider| {
            let name = provider.name().to_owned();
            (name, Arc::new(Bounded(provider)) as Arc<dyn Provider>)
        });
        Self { by_name: Arc::new(named.collect()), absent: Arc::default() }
    }

    /// Adds providers that this machine cannot run, each with its missing requirements.
    #[must_use]
    pub fn without(self, absent: impl IntoIterator<Item = (String, Vec<String>)>) -> Self {
        Self { absent: Arc::new(absent.into_iter().collect()), ..self }
    }

    /// Returns the providers that this machine cannot run, each with its missing requirements.
    pub fn absent(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.absent.iter().map(|(name, missing)| (name.as_str(), missing.as_slice()))
    }

    pub fn named(&self, name: &str) -> Result<&Arc<dyn Provider>, ProviderError> {
        let unknown = || ProviderError::Unknown { provider: name.to_owned() };
        self.by_name.get(name).ok_or_else(unknown)
    }

    /// Returns all providers, sorted by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Provider>> {
        self.by_name.values()
    }

    /// Returns the snapshots of all providers, each with the name of its provider.
    pub async fn snapshots(&self) -> Result<Vec<(String, Snapshot)>, ProviderError> {
        let mut all = Vec::new();
        for provider in self.all() {
            let Some(disks) = provider.disks() else { continue };
            let found = disks.snapshots().await?.into_iter();
            all.extend(found.map(|snapshot| (provider.name().to_owned(), snapshot)));
        }
        Ok(all)
    }

    /// Removes the snapshots of this name from all providers. Returns whether any existed.
    pub async fn remove_snapshot(&self, name: &str) -> Result<bool, ProviderError> {
        let mut removed = false;
        for provider in self.all() {
            if let Some(disks) = provider.disks() {
                removed |= disks.remove_snapshot(name).await?;
            }
        }
        Ok(removed)
    }
}
