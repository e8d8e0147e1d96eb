//! The egress log: the destinations that a sandbox connected to, and those that its rules refused.
//!
//! Pure. The kernel keeps the log in sets of the sandbox's own table, so it costs nothing after the first
//! packet of a connection, is read without the sandbox's help, and ends with the sandbox. A set has a maximum
//! size; once it is full, further destinations are only counted. The names of an allow-list are comments of
//! a set, because the table outlives the process that resolved them.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use provider::{EgressDestination, EgressLog, EgressVerdict};

/// Destinations with a port in each set.
const MAX_DESTINATIONS: usize = 512;

/// Destinations of protocols without ports in each set.
const MAX_PORTLESS: usize = 64;

/// How long a destination stays in the log after the last attempt.
const KEEP: Duration = Duration::from_secs(86_400);

/// Comments of nftables are shorter.
const MAX_NAME_BYTES: usize = 127;

/// The set of the allowed addresses that have a name.
pub(super) const NAMES_SET: &str = "names";

const VERDICTS: [(EgressVerdict, &str); 2] =
    [(EgressVerdict::Allowed, "allowed"), (EgressVerdict::Refused, "refused")];

/// The sets and counters of the log, for `nft -f`. Loading them again keeps their content.
pub(super) fn sets() -> String {
    let keep = KEEP.as_secs();
    let mut out = format!("set {NAMES_SET} {{ type ipv4_addr; }}\n");
    for (_, verdict) in VERDICTS {
        for (set, key, size) in [
            (verdict.to_owned(), "ipv4_addr . inet_proto . inet_service", MAX_DESTINATIONS),
            (format!("{verdict}_portless"), "ipv4_addr . inet_proto", MAX_PORTLESS),
        ] {
            let _ = writeln!(
                out,
                "set {set} {{ type {key}; size {size}; flags dynamic, timeout; timeout {keep}s; }}"
            );
        }
        let _ = writeln!(out, "counter {verdict}_unlisted {{ }}");
    }
    out
}

/// The rules that record a packet with this verdict. They decide nothing.
pub(super) fn record(verdict: EgressVerdict) -> String {
    let name = VERDICTS.iter().find(|(kind, _)| *kind == verdict).map_or("", |(_, name)| name);
    let mut out = String::new();
    for (set, protocols, key) in [
        (name.to_owned(), "{ tcp, udp }", "ip daddr . meta l4proto . th dport"),
        (format!("{name}_portless"), "!= { tcp, udp }", "ip daddr . meta l4proto"),
    ] {
        let _ = writeln!(
            out,
            "meta l4proto {protocols} update @{set} {{ {key} counter }}\n\
             meta l4proto {protocols} {key} != @{set} counter name {name}_unlisted"
        );
    }
    out
}

/// The elements of [`NAMES_SET`]. An address with several names has the first of them.
pub(super) fn named_elements(names: &[(&str, Ipv4Addr)]) -> String {
    let mut seen: Vec<Ipv4Addr> = Vec::new();
    let mut elements: Vec<String> = Vec::new();
    for (name, address) in names {
        // A name that is an address says nothing.
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        let useful = plain && name.len() <= MAX_NAME_BYTES && name.parse::<Ipv4Addr>().is_err();
        if useful && !seen.contains(address) {
            seen.push(*address);
            elements.push(format!("{address} comment \"{name}\""));
        }
    }
    elements.join(", ")
}

#[derive(Deserialize)]
struct Ruleset {
    nftables: Vec<Value>,
}

/// Parses the output of `nft -j list ruleset`. A table without the sets of a log has an empty one.
pub(super) fn parse(json: &[u8]) -> Result<EgressLog, serde_json::Error> {
    let objects = serde_json::from_slice::<Ruleset>(json)?.nftables;
    let named = |kind: &str, name: &str| {
        objects.iter().map(|object| &object[kind]).find(|object| object["name"] == name)
    };
    let elements = |set: &str| {
        let found = named("set", set).and_then(|set| set["elem"].as_array());
        found.into_iter().flatten().map(|element| &element["elem"])
    };
    let unlisted = |verdict: &str| {
        let counter = named("counter", &format!("{verdict}_unlisted"));
        counter.and_then(|counter| counter["packets"].as_u64()).unwrap_or(0)
    };
    let mut destinations = Vec::new();
    for (verdict, set) in VERDICTS {
        for element in elements(set).chain(elements(&format!("{set}_portless"))) {
            destinations.extend(destination(verdict, element));
        }
    }
    for element in elements(NAMES_SET) {
        let address = element["val"].as_str().and_then(|text| text.parse::<Ipv4Addr>().ok());
        for known in destinations.iter_mut().filter(|known| Some(known.address) == address) {
            known.name = element["comment"].as_str().map(str::to_owned);
        }
    }
    destinations.sort_by_key(|destination| destination.idle);
    Ok(EgressLog {
        destinations,
        unlisted_allowed: unlisted("allowed"),
        unlisted_refused: unlisted("refused"),
    })
}

fn destination(verdict: EgressVerdict, element: &Value) -> Option<EgressDestination> {
    let key = &element["val"]["concat"];
    let left = Duration::from_secs(element["expires"].as_u64()?);
    Some(EgressDestination {
        address: key[0].as_str()?.parse().ok()?,
        protocol: match &key[1] {
            Value::String(name) => name.clone(),
            number => number.to_string(),
        },
        port: key[2].as_u64().and_then(|port| u16::try_from(port).ok()),
        name: None,
        verdict,
        attempts: element["counter"]["packets"].as_u64()?,
        idle: KEEP.saturating_sub(left),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_log_has_destinations_names_and_the_number_of_the_others() {
        let element = |key: Value, packets: u64, expires: u64| {
            json!({"elem": {"val": {"concat": key}, "expires": expires,
                "counter": {"packets": packets, "bytes": 60}}})
        };
        let listed = json!({"nftables": [
            {"metainfo": {"version": "1.0.6"}},
            {"counter": {"name": "allowed_unlisted", "packets": 0}},
            {"counter": {"name": "refused_unlisted", "packets": 7}},
            {"set": {"name": "allowed", "elem": [element(json!(["1.2.3.4", "tcp", 443]), 3, 86_390)]}},
            {"set": {"name": "refused_portless", "elem": [element(json!(["10.0.0.1", "icmp"]), 1, 86_400)]}},
            {"set": {"name": "refused"}},
            {"set": {"name": "names", "elem": [{"elem": {"val": "1.2.3.4", "comment": "example.com"}}]}},
        ]});
        let address = |text: &str| text.parse().unwrap();
        let expected = EgressLog {
            destinations: vec![
                EgressDestination {
                    address: address("10.0.0.1"),
                    port: None,
                    protocol: "icmp".into(),
                    name: None,
                    verdict: EgressVerdict::Refused,
                    attempts: 1,
                    idle: Duration::ZERO,
                },
                EgressDestination {
                    address: address("1.2.3.4"),
                    port: Some(443),
                    protocol: "tcp".into(),
                    name: Some("example.com".into()),
                    verdict: EgressVerdict::Allowed,
                    attempts: 3,
                    idle: Duration::from_secs(10),
                },
            ],
            unlisted_allowed: 0,
            unlisted_refused: 7,
        };
        assert_eq!(parse(listed.to_string().as_bytes()).unwrap(), expected);
    }

    #[test]
    fn a_namespace_without_a_log_has_an_empty_one() {
        let empty = EgressLog::default();
        assert_eq!(parse(br#"{"nftables": [{"metainfo": {}}]}"#).unwrap(), empty);
        assert!(parse(b"").is_err());
    }

    #[test]
    fn an_address_has_one_name_that_nftables_accepts() {
        let at = |last: u8| Ipv4Addr::new(203, 0, 113, last);
        let long = format!("{}.example", "a".repeat(MAX_NAME_BYTES));
        let names = [
            ("one.example", at(1)),
            ("two.example", at(1)),
            ("203.0.113.2", at(2)),
            (long.as_str(), at(3)),
            ("x\" ; drop", at(4)),
            ("five.example", at(5)),
        ];
        let expected = r#"203.0.113.1 comment "one.example", 203.0.113.5 comment "five.example""#;
        assert_eq!(named_elements(&names), expected);
    }
}
