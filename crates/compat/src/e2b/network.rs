//! E2B's network configuration of a sandbox, for both directions.

use axum::http::HeaderValue;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{E2bRefusal, bad};
use adapter::{
    egress::{Network, NetworkRules},
    port::HOST_MASK,
};
use machine::{AddressBlock, EgressTarget};
use model::{PortAccess, Sandbox};

/// The key under which a sandbox records its configuration.
const CONFIG_KEY: &str = "network";
/// The error for domain names in `allowOut` without `denyOut: all`.
const DOMAINS_NEED_DENY_ALL: &str = "When specifying allowed domains in allow out, you must include \
    'ALL_TRAFFIC' in deny out to block all other traffic.";
/// The name server that is allowed along with domain names by default.
const DEFAULT_RESOLVER: &str = "8.8.8.8";
/// The limit of name servers per sandbox.
const MAX_RESOLVERS: usize = 10;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NetworkConfig {
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
    /// Part of an update; a create request has this field outside of `network`.
    #[serde(alias = "allow_internet_access", skip_serializing_if = "Option::is_none")]
    pub(super) allow_internet_access: Option<bool>,
    #[serde(alias = "https_ports", skip_serializing)]
    https_ports: Option<Vec<Value>>,
    #[serde(skip_serializing)]
    rules: Option<Value>,
    #[serde(alias = "egress_proxy", skip_serializing)]
    egress_proxy: Option<Value>,
}

impl NetworkConfig {
    /// The egress rules. Unsupported options are refused: a program that requests isolation must not run
    /// without it.
    pub(super) fn network(&self) -> Result<Network, E2bRefusal> {
        if self.https_ports.as_ref().is_some_and(|ports| !ports.is_empty()) {
            return Err(bad("httpsPorts are not supported: requests reach programs as plain HTTP"));
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
            return Err(bad("maskRequestHost is not a valid host name"));
        }
        let mut deny = self.deny_out.clone().unwrap_or_default();
        if self.allow_internet_access == Some(false) {
            deny.push(AddressBlock::EVERYTHING.to_string());
        }
        let mut denies_everything = false;
        for word in &deny {
            let block: AddressBlock =
                word.parse().map_err(|_| bad(format!("invalid denied CIDR {word}")))?;
            denies_everything |= block == AddressBlock::EVERYTHING;
        }
        let mut allow = self.allow_out.clone().unwrap_or_default();
        let mut has_names = false;
        for word in &allow {
            let target: EgressTarget = word.parse().map_err(bad)?;
            has_names |= matches!(target, EgressTarget::Name(_));
        }
        if has_names && !denies_everything {
            return Err(bad(DOMAINS_NEED_DENY_ALL));
        }
        let resolvers = self.resolvers()?;
        if has_names {
            allow.extend(resolvers);
        }
        if deny.is_empty() {
            return Ok(Network::Default);
        }
        Ok(Network::Ruled(NetworkRules { allow, deny }))
    }

    fn resolvers(&self) -> Result<Vec<String>, E2bRefusal> {
        let Some(servers) = &self.dns_servers else { return Ok(vec![DEFAULT_RESOLVER.to_owned()]) };
        let is_address = |text: &String| text.parse::<std::net::Ipv4Addr>().is_ok();
        if servers.len() > MAX_RESOLVERS || !servers.iter().all(is_address) {
            let message = format!("dnsServers must be at most {MAX_RESOLVERS} IPv4 addresses");
            return Err(bad(message));
        }
        Ok(servers.clone())
    }

    pub(super) fn port_access(&self) -> PortAccess {
        match self.allow_public_traffic {
            Some(false) => PortAccess::Token,
            Some(true) | None => PortAccess::Public,
        }
    }

    /// The keys and values that a sandbox records.
    pub(super) fn extra(&self) -> Vec<(String, String)> {
        let config = serde_json::to_string(self).unwrap_or_default();
        let mask = self.mask_request_host.clone().map(|host| (HOST_MASK.to_owned(), host));
        std::iter::once((CONFIG_KEY.to_owned(), config)).chain(mask).collect()
    }

    /// The configuration that a sandbox records.
    pub(super) fn of(sandbox: &Sandbox) -> NetworkConfig {
        let recorded =
            sandbox.extra.get(CONFIG_KEY).and_then(|text| serde_json::from_str(text).ok());
        recorded.unwrap_or_default()
    }

    /// The configuration after an update. An update replaces the egress rules as a whole and keeps the ingress
    /// settings.
    pub(super) fn updated(self, update: NetworkConfig) -> NetworkConfig {
        NetworkConfig {
            allow_public_traffic: self.allow_public_traffic,
            mask_request_host: self.mask_request_host,
            ..update
        }
    }

    /// The setting of internet access, and the rest of the configuration if there is any.
    pub(super) fn view(&self) -> (Option<bool>, Option<Value>) {
        let rest = NetworkConfig { allow_internet_access: None, ..self.clone() };
        (self.allow_internet_access, (rest != NetworkConfig::default()).then(|| json!(rest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_becomes_egress_rules_or_is_refused() {
        let ruled = |allow: &[&str], deny: &[&str]| {
            let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
            Some(Network::Ruled(NetworkRules { allow: list(allow), deny: list(deny) }))
        };
        let check = |request: Value, expected: Option<Network>| {
            let config: NetworkConfig = serde_json::from_value(request.clone()).unwrap();
            assert_eq!(config.network().ok(), expected, "{request}");
        };
        let all = "0.0.0.0/0";
        check(json!({}), Some(Network::Default));
        check(json!({"allowPublicTraffic": false}), Some(Network::Default));
        check(json!({"allowInternetAccess": true}), Some(Network::Default));
        check(json!({"allowInternetAccess": false}), ruled(&[], &[all]));
        check(json!({"denyOut": ["8.8.8.8"]}), ruled(&[], &["8.8.8.8"]));
        check(json!({"deny_out": [all], "allow_out": ["1.1.1.1"]}), ruled(&["1.1.1.1"], &[all]));
        let names = json!({"denyOut": [all], "allowOut": ["example.com"]});
        check(names, ruled(&["example.com", "8.8.8.8"], &[all]));
        let no_resolver = json!({"denyOut": [all], "allowOut": ["example.com"], "dnsServers": []});
        check(no_resolver, ruled(&["example.com"], &[all]));
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
    fn the_view_has_the_requested_configuration() {
        let request = json!({"denyOut": ["8.8.8.8"], "maskRequestHost": "x", "egressProxy": null});
        let config: NetworkConfig = serde_json::from_value(request).unwrap();
        let view = json!({"denyOut": ["8.8.8.8"], "maskRequestHost": "x"});
        assert_eq!(config.view(), (None, Some(view)));
        assert_eq!(NetworkConfig::default().view(), (None, None));
    }
}
