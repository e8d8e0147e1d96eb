//! The hosts that were lost most recently.

use std::collections::VecDeque;

/// How many hosts are remembered: more than can be lost while one command is handed over.
const MAX_REMEMBERED: usize = 64;

/// The boot ids of the hosts that were lost most recently, oldest first.
#[derive(Debug, Default)]
pub(super) struct LostHosts(VecDeque<String>);

impl LostHosts {
    pub(super) fn add(&mut self, host: &str) {
        if !self.contains(host) {
            self.0.push_back(host.to_owned());
        }
        if self.0.len() > MAX_REMEMBERED {
            self.0.pop_front();
        }
    }

    pub(super) fn contains(&self, host: &str) -> bool {
        self.0.iter().any(|known| known == host)
    }
}
