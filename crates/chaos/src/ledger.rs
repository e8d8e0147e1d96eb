//! How often side effects of commands, fed and typed lines, and messages must be found.

use std::collections::BTreeMap;

/// How often an entry may be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// It was acknowledged.
    Once,
    /// Its outcome is not known.
    AtMostOnce,
    /// It was refused or never sent.
    Never,
}

/// Entries by their id.
#[derive(Debug, Clone, Default)]
pub struct Ledger(BTreeMap<u64, Expected>);

impl Ledger {
    /// Records what is known about an entry.
    pub fn expect(&mut self, id: u64, expected: Expected) {
        self.0.insert(id, expected);
    }

    /// Compares what was found with what was expected, and returns a sentence for each difference.
    #[must_use]
    pub fn compare(&self, found: &[u64]) -> Vec<String> {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        for id in found {
            *counts.entry(*id).or_default() += 1;
        }
        let mut differences = Vec::new();
        for (id, expected) in &self.0 {
            let count = counts.remove(id).unwrap_or(0);
            let allowed = match expected {
                Expected::Once => 1..=1,
                Expected::AtMostOnce => 0..=1,
                Expected::Never => 0..=0,
            };
            if !allowed.contains(&count) {
                let name = crate::plan::name(*id);
                differences.push(format!("{name} expected {expected:?}, found {count} times"));
            }
        }
        for (id, count) in counts {
            let name = crate::plan::name(id);
            differences.push(format!("{name} is unknown and was found {count} times"));
        }
        differences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_expectation_allows_its_counts() {
        let mut ledger = Ledger::default();
        let ids = [Expected::Once, Expected::AtMostOnce, Expected::Never];
        for (index, expected) in ids.into_iter().enumerate() {
            ledger.expect(crate::plan::id(0, index as u64), expected);
        }
        let id = |index| crate::plan::id(0, index);
        assert_eq!(ledger.compare(&[id(0)]), Vec::<String>::new());
        assert_eq!(ledger.compare(&[id(0), id(1)]), Vec::<String>::new());
        assert_eq!(ledger.compare(&[id(1), id(1)]).len(), 2);
        assert_eq!(ledger.compare(&[id(0), id(2)]).len(), 1);
        assert_eq!(ledger.compare(&[id(0), id(9)]).len(), 1);
    }
}
