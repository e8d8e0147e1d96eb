//! What a sandbox may reach, and who may reach it, as E2B writes it.

use axum::{
    extract::{Path, State},
    http::{HeaderValue, StatusCode},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Asked, Refusal,
    control::{bad, find, missing},
};
use crate::Compat;
use crate::{
    port,
    reach::{Network, Rules},
    sandbox::Facts,
};
use machine::{AddressBlock, EgressTarget};

/// The name under which a sandbox remembers what was asked for.
const ASKED: &str = "network";
/// What is said of names among what is allowed, where the rest is not denied.
const NAMES_ALONE: &str = "When specifying allowed domains in allow out, you must include \
    'ALL_TRAFFIC' in deny out to block all other traffic.";
/// The name server that may be asked where names are allowed and no other is named.
const USUAL_RESOLVER: &str = "8.8.8.8";
/// Name servers of one sandbox.
const MOST_RESOLVERS: usize = 10;

/// What a client asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Config {
    #[serde(alias = "allow_out", skip_serializing_if = "Option::is_none")]
    allow_out: Option<Vec<String>>,
    #[serde(alias = "deny_out", skip_serializing_if = "Option::is_none")]
    deny_out: Option<Vec<String>>,
    #[serde(alias = "dns_servers", skip_serializing_if = "Option::is_none")]
    dns_servers: Option<Vec<String>>,
    #[serde(alias = "allow_public_traffic", skip_serializing_if = "Option::is_none")]
    allow_public_traffic: Option<bool>,
    #[serde(alias = "mask_request_host", skip_serializing_if = "Option::is_none")]
    mask_request_host: Option<String>,
    /// Of an update; at the beginning it is beside the others.
    #[serde(alias = "allow_internet_access", skip_serializing_if = "Option::is_none")]
    pub(super) allow_internet_access: Option<bool>,
    #[serde(alias = "https_ports", skip_serializing)]
    https_ports: Option<Vec<Value>>,
    #[serde(skip_serializing)]
    rules: Option<Value>,
    #[serde(alias = "egress_proxy", skip_serializing)]
    egress_proxy: Option<Value>,
}

impl Config {
    /// What it comes to. What cannot be had is refused: a program that asks to be cut off must not run
    /// believing that it is.
    pub(super) fn network(&self) -> Result<Network, Refusal> {
        if self.https_ports.as_ref().is_some_and(|ports| !ports.is_empty()) {
            return Err(bad("httpsPorts are not supported: programs are asked in plain HTTP"));
        }
        if self.egress_proxy.as_ref().is_some_and(|proxy| !proxy.is_null()) {
            return Err(bad("egressProxy is not supported"));
        }
        let rules = self.rules.iter().filter_map(Value::as_object).flat_map(|it| it.values());
        if rules.filter_map(Value::as_array).flatten().any(|rule| !rule["transform"].is_null()) {
            return Err(bad("rules that transform requests are not supported"));
        }
        let mask = self.mask_request_host.as_ref();
        if mask.is_some_and(|host| host.is_empty() || HeaderValue::from_str(host).is_err()) {
            return Err(bad("maskRequestHost is not the name of a host"));
        }
        let mut deny = self.deny_out.clone().unwrap_or_default();
        if self.allow_internet_access == Some(false) {
            deny.push(AddressBlock::EVERYTHING.to_string());
        }
        let mut everything = false;
        for word in &deny {
            let block: AddressBlock =
                word.parse().map_err(|_| bad(format!("invalid denied CIDR {word}")))?;
            everything |= block == AddressBlock::EVERYTHING;
        }
        let mut allow = self.allow_out.clone().unwrap_or_default();
        let mut names = false;
        for word in &allow {
            let target: EgressTarget = word.parse().map_err(bad)?;
            names |= matches!(target, EgressTarget::Name(_));
        }
        if names && !everything {
            return Err(bad(NAMES_ALONE));
        }
        let resolvers = self.resolvers()?;
        if names {
            allow.extend(resolvers);
        }
        if deny.is_empty() {
            return Ok(Network::Usual);
        }
        Ok(Network::Ruled(Rules { allow, deny }))
    }

    fn resolvers(&self) -> Result<Vec<String>, Refusal> {
        let Some(servers) = &self.dns_servers else { return Ok(vec![USUAL_RESOLVER.to_owned()]) };
        let is_address = |text: &String| text.parse::<std::net::Ipv4Addr>().is_ok();
        if servers.len() > MOST_RESOLVERS || !servers.iter().all(is_address) {
            let message = format!("dnsServers are at most {MOST_RESOLVERS} addresses of version 4");
            return Err(bad(message));
        }
        Ok(servers.clone())
    }

    /// Writes down what was asked for.
    pub(super) fn note(&self, facts: &mut Facts) {
        facts.more.extend(self.notes());
    }

    /// The same, as what is known of a sandbox.
    pub(super) fn notes(&self) -> Vec<(String, String)> {
        let open_to = match self.allow_public_traffic {
            Some(false) => port::KEY,
            Some(true) | None => port::ANYBODY,
        };
        let asked = serde_json::to_string(self).unwrap_or_default();
        let mut notes =
            vec![(port::OPEN_TO.to_owned(), open_to.to_owned()), (ASKED.to_owned(), asked)];
        notes.extend(self.mask_request_host.clone().map(|host| (port::MASK.to_owned(), host)));
        notes
    }

    /// What was asked for of a sandbox.
    pub(super) fn of(facts: &Facts) -> Config {
        let noted = facts.more.get(ASKED).and_then(|text| serde_json::from_str(text).ok());
        noted.unwrap_or_default()
    }

    /// What a client is told: whether internet access was chosen, and the rest if there is any.
    pub(super) fn shown(&self) -> (Option<bool>, Option<Value>) {
        let rest = Config { allow_internet_access: None, ..self.clone() };
        (self.allow_internet_access, (rest != Config::default()).then(|| json!(rest)))
    }
}

/// Gives a sandbox other rules for what it reaches. What is left out is not asked for any more; who may
/// reach the sandbox stays.
pub(super) async fn update(
    State(app): State<Compat>,
    Path(name): Path<String>,
    Asked(asked): Asked<Config>,
) -> Result<StatusCode, Refusal> {
    let sandbox = find(&app, &name).await?;
    let before = Config::of(&sandbox);
    let config = Config {
        allow_public_traffic: before.allow_public_traffic,
        mask_request_host: before.mask_request_host,
        ..asked
    };
    let network = config.network()?;
    let changed = app.change_network(&sandbox, &network, |facts| config.note(facts));
    changed.await?.map(|_| StatusCode::NO_CONTENT).ok_or_else(|| missing(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sandbox_may_reach_is_what_was_asked_for_or_refused() {
        let ruled = |allow: &[&str], deny: &[&str]| {
            let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
            Some(Network::Ruled(Rules { allow: list(allow), deny: list(deny) }))
        };
        let check = |asked: Value, expected: Option<Network>| {
            let config: Config = serde_json::from_value(asked.clone()).unwrap();
            assert_eq!(config.network().ok(), expected, "{asked}");
        };
        let all = "0.0.0.0/0";
        check(json!({}), Some(Network::Usual));
        check(json!({"allowPublicTraffic": false}), Some(Network::Usual));
        check(json!({"allowInternetAccess": true}), Some(Network::Usual));
        check(json!({"allowInternetAccess": false}), ruled(&[], &[all]));
        check(json!({"denyOut": ["8.8.8.8"]}), ruled(&[], &["8.8.8.8"]));
        check(json!({"deny_out": [all], "allow_out": ["1.1.1.1"]}), ruled(&["1.1.1.1"], &[all]));
        let names = json!({"denyOut": [all], "allowOut": ["example.com"]});
        check(names, ruled(&["example.com", "8.8.8.8"], &[all]));
        let own = json!({"denyOut": [all], "allowOut": ["example.com"], "dnsServers": []});
        check(own, ruled(&["example.com"], &[all]));
        for refused in [
            json!({"allowOut": ["example.com"]}),
            json!({"denyOut": ["example.com"]}),
            json!({"denyOut": [all], "allowOut": ["*.example.com"]}),
            json!({"dnsServers": ["one"]}),
            json!({"maskRequestHost": "a\nb"}),
            json!({"httpsPorts": [3000]}),
            json!({"egressProxy": {"address": "a:1"}}),
            json!({"rules": {"a.com": [{"transform": {"headers": {}}}]}}),
        ] {
            check(refused, None);
        }
    }

    #[test]
    fn what_was_asked_for_is_told() {
        let asked = json!({"denyOut": ["8.8.8.8"], "maskRequestHost": "x", "egressProxy": null});
        let config: Config = serde_json::from_value(asked).unwrap();
        let shown = json!({"denyOut": ["8.8.8.8"], "maskRequestHost": "x"});
        assert_eq!(config.shown(), (None, Some(shown)));
        assert_eq!(Config::default().shown(), (None, None));
    }
}
