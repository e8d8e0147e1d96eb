//! Disks that a vendor keeps for leases between their sandboxes.

use model::{Instance, LeaseId};
use provider::{CopyTo, Disks, ProviderError, Reply, Snapshot};

use super::Cloud;
use super::vendor::{LEASE_LABEL, VendorDisks};

impl Cloud {
    fn vendor_disks(&self) -> Result<&dyn VendorDisks, ProviderError> {
        let vendor = &self.0.vendor;
        let what = "keep the files of a lease";
        vendor.disks().ok_or_else(|| ProviderError::unsupported(vendor.name(), what))
    }
}

fn unsupported<'a, T: Send + 'a>(cloud: &Cloud, what: &'static str) -> Reply<'a, T> {
    let error = ProviderError::unsupported(cloud.0.vendor.name(), what);
    Box::pin(std::future::ready(Err(error)))
}

impl Disks for Cloud {
    fn kept(&self) -> Reply<'_, Vec<LeaseId>> {
        Box::pin(async move {
            let found = self.vendor_disks()?.disks_with(&self.labels(&[])).await;
            let found = found.map_err(|fault| fault.of("list the disks of leases"))?;
            let mut leases: Vec<LeaseId> =
                found.iter().filter_map(|labels| labels.get(LEASE_LABEL)?.parse().ok()).collect();
            leases.sort();
            leases.dedup();
            Ok(leases)
        })
    }

    fn forget<'a>(&'a self, lease: &'a LeaseId) -> Reply<'a, ()> {
        Box::pin(async move {
            let labels = self.labels(&[(LEASE_LABEL, lease.to_string())]);
            let removed = self.vendor_disks()?.remove_disks(&labels).await;
            removed.map_err(|fault| fault.of("remove the disk of a lease"))
        })
    }

    fn copy<'a>(
        &'a self,
        _lease: &'a LeaseId,
        _instance: Option<&'a Instance>,
        _to: &'a CopyTo,
    ) -> Reply<'a, ()> {
        unsupported(self, "copy the files of a lease")
    }

    fn grow<'a>(&'a self, _lease: &'a LeaseId, _bytes: u64) -> Reply<'a, ()> {
        unsupported(self, "change the size of a disk")
    }

    fn snapshots(&self) -> Reply<'_, Vec<Snapshot>> {
        Box::pin(std::future::ready(Ok(vec![])))
    }

    fn remove_snapshot<'a>(&'a self, _name: &'a str) -> Reply<'a, bool> {
        Box::pin(std::future::ready(Ok(false)))
    }
}
