//! The content of a disk after a power failure at a point of its record.

use std::time::Instant;

use super::fuse::DiskRecord;
use crate::rng::Rng;

/// The unit that a disk writes atomically.
const SECTOR_BYTES: usize = 4096;

/// A power failure.
#[derive(Debug, Clone, Copy)]
pub struct PowerCut {
    /// The record before which the power failed.
    pub position: usize,
    /// The time of that record.
    pub at: Instant,
    /// The number of the cut.
    pub index: usize,
}

/// Replays a record up to successive cuts.
#[derive(Debug)]
pub struct Replay<'a> {
    records: &'a [DiskRecord],
    /// The content at the last barrier before the last cut.
    stable: Vec<u8>,
    next: usize,
}

impl<'a> Replay<'a> {
    /// Starts with the content that the disk had when the record began.
    #[must_use]
    pub fn new(base: Vec<u8>, records: &'a [DiskRecord]) -> Replay<'a> {
        Replay { records, stable: base, next: 0 }
    }

    /// Returns the content after a power cut before record `at`: everything up to the last barrier, and any part of what
    /// was written since, in units of a sector. Cuts must come in rising order.
    pub fn cut(&mut self, at: usize, rng: &mut Rng) -> Vec<u8> {
        let barrier = |record: &DiskRecord| matches!(record, DiskRecord::Barrier);
        let until =
            self.records[..at].iter().rposition(barrier).unwrap_or(self.next).max(self.next);
        for record in &self.records[self.next..until] {
            if let DiskRecord::Write(offset, data) = record {
                let start = *offset as usize;
                self.stable[start..start + data.len()].copy_from_slice(data);
            }
        }
        self.next = until;
        let mut content = self.stable.clone();
        // All, some or nothing of the cache may have reached the disk.
        let kept = *rng.pick(&[0, 50, 90, 100]);
        for record in &self.records[until..at] {
            if let DiskRecord::Write(offset, data) = record {
                for (index, sector) in data.chunks(SECTOR_BYTES).enumerate() {
                    if rng.chance(kept) {
                        let start = *offset as usize + index * SECTOR_BYTES;
                        content[start..start + sector.len()].copy_from_slice(sector);
                    }
                }
            }
        }
        content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_before_a_barrier_persist_and_later_ones_may_be_lost() {
        let write = |offset, byte| DiskRecord::Write(offset, vec![byte; 4]);
        let records = [write(0, 1), DiskRecord::Barrier, write(4, 2), write(0, 3)];
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let mut rng = Rng::new(seed, &[]);
            let mut replay = Replay::new(vec![0; 8], &records);
            assert!(matches!(replay.cut(1, &mut rng)[0], 0 | 1));
            assert_eq!(replay.cut(2, &mut rng)[0..4], [1; 4]);
            seen.insert(replay.cut(4, &mut rng));
        }
        // Each of the last two writes persists or is lost, independently.
        assert_eq!(seen.len(), 4);
    }
}
