//! A shell's state as named sections of bytes, and the changes between two states.
//!
//! Only the module of a kind of shell knows the contents of its sections; `cwd` (a path) and `env` (`K=V`,
//! each ended by NUL) have the same format for all kinds.

use std::collections::BTreeMap;

use wire::Sections;

/// The known state of a shell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State(BTreeMap<String, Vec<u8>>);

/// The changed sections, and the names of the removed sections.
pub type Changes = (Sections, Vec<String>);

impl State {
    /// Returns the state that consists of these sections.
    #[must_use]
    pub fn from_sections(sections: Sections) -> Self {
        Self(sections.into_iter().collect())
    }

    /// Returns every section, by name.
    #[must_use]
    pub fn sections(&self) -> Sections {
        self.0.iter().map(|(name, bytes)| (name.clone(), bytes.clone())).collect()
    }

    /// Returns whether there are no sections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes of a section, which are empty if it does not exist.
    #[must_use]
    pub fn get(&self, name: &str) -> &[u8] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns whether a section exists.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Sets a section.
    pub fn set(&mut self, name: &str, bytes: Vec<u8>) {
        self.0.insert(name.to_owned(), bytes);
    }

    /// Returns the lines of a section.
    pub fn lines(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.get(name).split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
    }

    /// Replaces the sections that `newer` has; the others stay unchanged. Returns the changes.
    pub fn absorb(&mut self, newer: Self) -> Changes {
        let mut changed = Vec::new();
        for (name, bytes) in newer.0 {
            if self.0.get(&name) != Some(&bytes) {
                changed.push((name.clone(), bytes.clone()));
                self.0.insert(name, bytes);
            }
        }
        (changed, Vec::new())
    }

    /// Returns the exported variables.
    pub fn env(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.get("env").split(|byte| *byte == 0).filter_map(|pair| {
            let equals = pair.iter().position(|byte| *byte == b'=')?;
            Some((&pair[..equals], &pair[equals + 1..]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_reported() {
        let mut state = State::default();
        state.set("cwd", b"/".to_vec());
        state.set("umask", b"umask 0022".to_vec());
        let mut newer = State::default();
        newer.set("cwd", b"/tmp".to_vec());
        let (changed, removed) = state.absorb(newer);
        assert_eq!(changed, vec![("cwd".to_owned(), b"/tmp".to_vec())]);
        assert!(removed.is_empty());
        assert_eq!(state.get("umask"), b"umask 0022");
    }

    #[test]
    fn env_is_parsed_into_pairs() {
        let mut state = State::default();
        state.set("env", b"A=1=2\0B=\0".to_vec());
        let pairs: Vec<_> = state.env().collect();
        assert_eq!(pairs, vec![(&b"A"[..], &b"1=2"[..]), (&b"B"[..], &b""[..])]);
    }
}
