//! Daytona's network settings of a sandbox.

use serde::Deserialize;
use serde_json::Value;

use adapter::egress::Network;
use model::Sandbox;

/// The key under which a sandbox records `networkBlockAll`.
const BLOCK_ALL: &str = "cut_off";
/// The key under which a sandbox records `networkAllowList`.
const ALLOW_LIST: &str = "network_allow_list";
/// The key under which a sandbox records `domainAllowList`.
const DOMAINS: &str = "domain_allow_list";

/// The settings that a client requests; lists are separated by commas.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NetworkSettings {
    pub(super) network_block_all: Option<bool>,
    pub(super) network_allow_list: Option<String>,
    pub(super) domain_allow_list: Option<String>,
}

impl NetworkSettings {
    /// The network rules: a list names the only destinations, and `network_block_all` leaves none.
    pub(super) fn network(&self) -> Network {
        let lists = [&self.network_allow_list, &self.domain_allow_list];
        let words = lists.into_iter().flatten().flat_map(|list| list.split(','));
        let allow: Vec<String> =
            words.map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect();
        match self.network_block_all {
            Some(true) => Network::only(vec![]),
            Some(false) | None if allow.is_empty() => Network::Default,
            Some(false) | None => Network::only(allow),
        }
    }

    /// The keys and values that a sandbox records.
    pub(super) fn extra(&self) -> Vec<(String, String)> {
        let block_all = self.network_block_all.unwrap_or_default();
        let mut extra = vec![(BLOCK_ALL.to_owned(), block_all.to_string())];
        for (name, list) in
            [(ALLOW_LIST, &self.network_allow_list), (DOMAINS, &self.domain_allow_list)]
        {
            extra.push((name.to_owned(), list.clone().unwrap_or_default()));
        }
        extra
    }
}

/// Adds the network settings to the view of a sandbox.
pub(super) fn add_view(sandbox: &Sandbox, body: &mut Value) {
    let recorded = |name: &str| sandbox.extra.get(name).filter(|text| !text.is_empty());
    body["networkBlockAll"] = recorded(BLOCK_ALL).is_some_and(|it| it == "true").into();
    for (name, field) in [(ALLOW_LIST, "networkAllowList"), (DOMAINS, "domainAllowList")] {
        if let Some(list) = recorded(name) {
            body[field] = list.as_str().into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_the_only_destinations() {
        let check = |block: Option<bool>, list: Option<&str>, expected: Network| {
            let settings = NetworkSettings {
                network_block_all: block,
                network_allow_list: list.map(str::to_owned),
                domain_allow_list: None,
            };
            assert_eq!(settings.network(), expected, "{block:?} {list:?}");
        };
        let list = || vec!["1.1.1.0/24".to_owned(), "8.8.8.8/32".to_owned()];
        check(None, None, Network::Default);
        check(Some(false), Some(""), Network::Default);
        check(None, Some("1.1.1.0/24, 8.8.8.8/32"), Network::only(list()));
        check(Some(true), Some("1.1.1.0/24"), Network::only(vec![]));
    }
}
