//! What a sandbox may reach, as Daytona writes it.

use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::Value;

use super::{Asked, Refusal, control::shown, find};
use crate::Compat;
use crate::{reach::Network, sandbox::Facts};

/// Where a sandbox remembers what was asked for.
const BLOCK_ALL: &str = "cut_off";
/// See [`BLOCK_ALL`].
const ALLOW_LIST: &str = "network_allow_list";
/// See [`BLOCK_ALL`].
const DOMAINS: &str = "domain_allow_list";

/// What a client asks for; lists are written with commas.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Settings {
    pub(super) network_block_all: Option<bool>,
    pub(super) network_allow_list: Option<String>,
    pub(super) domain_allow_list: Option<String>,
}

impl Settings {
    /// What it comes to: a list is all that is reached, and nothing is where all is blocked.
    pub(super) fn network(&self) -> Network {
        let lists = [&self.network_allow_list, &self.domain_allow_list];
        let words = lists.into_iter().flatten().flat_map(|list| list.split(','));
        let allow: Vec<String> =
            words.map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect();
        match self.network_block_all {
            Some(true) => Network::only(vec![]),
            Some(false) | None if allow.is_empty() => Network::Usual,
            Some(false) | None => Network::only(allow),
        }
    }

    /// The same, as what is known of a sandbox.
    pub(super) fn notes(&self) -> Vec<(String, String)> {
        let block_all = self.network_block_all.unwrap_or_default();
        let mut notes = vec![(BLOCK_ALL.to_owned(), block_all.to_string())];
        for (name, list) in
            [(ALLOW_LIST, &self.network_allow_list), (DOMAINS, &self.domain_allow_list)]
        {
            notes.push((name.to_owned(), list.clone().unwrap_or_default()));
        }
        notes
    }
}

/// Adds to what a client is told of a sandbox what it may reach.
pub(super) fn tell(facts: &Facts, body: &mut Value) {
    let noted = |name: &str| facts.more.get(name).filter(|text| !text.is_empty());
    body["networkBlockAll"] = noted(BLOCK_ALL).is_some_and(|it| it == "true").into();
    for (name, field) in [(ALLOW_LIST, "networkAllowList"), (DOMAINS, "domainAllowList")] {
        if let Some(list) = noted(name) {
            body[field] = list.as_str().into();
        }
    }
}

/// Changes what a sandbox reaches; what runs in it goes on.
pub(super) async fn update(
    State(app): State<Compat>,
    Path(name): Path<String>,
    Asked(asked): Asked<Settings>,
) -> Result<axum::Json<Value>, Refusal> {
    let sandbox = find(&app, &name).await?;
    let network = asked.network();
    let changed = app.change_network(&sandbox, &network, |facts| {
        facts.more.extend(asked.notes());
    });
    let missing = || Refusal::missing(format!("Sandbox {name} not found"));
    let sandbox = changed.await?.ok_or_else(missing)?;
    shown(&app, &sandbox).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_all_that_is_reached() {
        let check = |block: Option<bool>, list: Option<&str>, expected: Network| {
            let settings = Settings {
                network_block_all: block,
                network_allow_list: list.map(str::to_owned),
                domain_allow_list: None,
            };
            assert_eq!(settings.network(), expected, "{block:?} {list:?}");
        };
        let list = || vec!["1.1.1.0/24".to_owned(), "8.8.8.8/32".to_owned()];
        check(None, None, Network::Usual);
        check(Some(false), Some(""), Network::Usual);
        check(None, Some("1.1.1.0/24, 8.8.8.8/32"), Network::only(list()));
        check(Some(true), Some("1.1.1.0/24"), Network::only(vec![]));
    }
}
