//! Egress rules for single destinations.
//!
//! Pure. Allowed destinations take precedence over denied ones. A rule never allows a destination outside
//! of the base, such as this machine or a private network.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The number of destinations in one list.
const MAX_DESTINATIONS: usize = 256;

/// Rules that restrict the destinations of a base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressRules {
    /// The destinations that are allowed without a rule.
    pub base: EgressBase,
    /// Takes precedence over `deny`.
    pub allow: Vec<EgressTarget>,
    pub deny: Vec<AddressBlock>,
}

/// The destinations that rules restrict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EgressBase {
    /// The internet.
    Public,
    /// All destinations that this machine can reach.
    All,
}

/// The destination of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum EgressTarget {
    Block(AddressBlock),
    /// The addresses that a name has when the rule is applied.
    Name(String),
}

/// A CIDR block. Sandboxes have only IPv4, so an IPv6 block has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AddressBlock {
    /// The first address, and the length of the prefix.
    V4(Ipv4Addr, u8),
    V6(Ipv6Addr, u8),
}

impl AddressBlock {
    /// All IPv4 addresses.
    pub const EVERYTHING: AddressBlock = AddressBlock::V4(Ipv4Addr::UNSPECIFIED, 0);
}

impl EgressRules {
    /// Parses the rules of a lease's `spec`: `{"allow": […], "deny": […]}`.
    pub(crate) fn parse(base: EgressBase, value: &Value) -> Result<EgressRules, String> {
        let mut rules = EgressRules { base, allow: vec![], deny: vec![] };
        for (field, list) in value.as_object().into_iter().flatten() {
            let words = list
                .as_array()
                .and_then(|list| list.iter().map(Value::as_str).collect::<Option<Vec<&str>>>());
            let words = words.ok_or_else(|| format!("{field} is not a list of destinations"))?;
            if words.len() > MAX_DESTINATIONS {
                return Err(format!("{field} has more than {MAX_DESTINATIONS} destinations"));
            }
            match field.as_str() {
                "allow" => rules.allow = parsed(&words)?,
                "deny" => rules.deny = parsed(&words)?,
                _ => return Err(format!("{field:?} is neither allow nor deny")),
            }
        }
        Ok(rules)
    }

    /// Returns the allowed names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.allow.iter().filter_map(|target| match target {
            EgressTarget::Name(name) => Some(name.as_str()),
            EgressTarget::Block(_) => None,
        })
    }

    /// The allowed and the denied IPv4 blocks.
    pub(crate) fn blocks(&self) -> (Vec<String>, Vec<String>) {
        let text = |block: &AddressBlock| match block {
            AddressBlock::V4(..) => Some(block.to_string()),
            AddressBlock::V6(..) => None,
        };
        let allowed = self.allow.iter().filter_map(|target| match target {
            EgressTarget::Block(block) => text(block),
            EgressTarget::Name(_) => None,
        });
        (allowed.collect(), self.deny.iter().filter_map(text).collect())
    }
}

fn parsed<T: FromStr<Err = String>>(words: &[&str]) -> Result<Vec<T>, String> {
    words.iter().map(|word| word.trim().parse()).collect()
}

impl FromStr for AddressBlock {
    type Err = String;

    fn from_str(text: &str) -> Result<AddressBlock, String> {
        let wrong = || format!("{text:?} is not an address or a block such as 10.0.0.0/8");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        if let Ok(address) = address.parse::<Ipv4Addr>() {
            let bits = bits.unwrap_or(32);
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            let first = Ipv4Addr::from(u32::from(address) & mask);
            return if bits <= 32 { Ok(AddressBlock::V4(first, bits)) } else { Err(wrong()) };
        }
        let address: Ipv6Addr = address.parse().map_err(|_| wrong())?;
        let bits = bits.unwrap_or(128);
        if bits <= 128 { Ok(AddressBlock::V6(address, bits)) } else { Err(wrong()) }
    }
}

impl FromStr for EgressTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<EgressTarget, String> {
        if let Ok(block) = text.parse() {
            return Ok(EgressTarget::Block(block));
        }
        if text.starts_with("*.") {
            return Err(format!("{text:?}: wildcards are not supported; list each name"));
        }
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let mut labels = text.split('.');
        let is_name = text.len() <= 253
            && text.bytes().any(|byte| byte.is_ascii_alphabetic())
            && labels.all(|label| (1..=63).contains(&label.len()) && label.bytes().all(is_letter));
        if !is_name {
            return Err(format!("{text:?} is not an address, a block or a name"));
        }
        Ok(EgressTarget::Name(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for AddressBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressBlock::V4(address, bits) => write!(f, "{address}/{bits}"),
            AddressBlock::V6(address, bits) => write!(f, "{address}/{bits}"),
        }
    }
}

impl fmt::Display for EgressTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EgressTarget::Block(block) => block.fmt(f),
            EgressTarget::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for EgressRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.base {
            EgressBase::Public => "public",
            EgressBase::All => "all",
        })?;
        for block in &self.deny {
            write!(f, " -{block}")?;
        }
        for target in &self.allow {
            write!(f, " +{target}")?;
        }
        Ok(())
    }
}

/// Serializes a type as its text.
macro_rules! text {
    ($kind:ty) => {
        impl From<$kind> for String {
            fn from(value: $kind) -> String {
                value.to_string()
            }
        }

        impl TryFrom<String> for $kind {
            type Error = String;

            fn try_from(text: String) -> Result<$kind, String> {
                text.parse()
            }
        }
    };
}

text!(AddressBlock);
text!(EgressTarget);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn destinations_are_blocks_or_names() {
        let check = |text: &str, expected: Option<&str>| {
            let found = text.parse::<EgressTarget>().ok().map(|target| target.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        };
        check("8.8.8.8", Some("8.8.8.8/32"));
        check("8.8.8.9/24", Some("8.8.8.0/24"));
        check("0.0.0.0/0", Some("0.0.0.0/0"));
        check("2001:db8::/32", Some("2001:db8::/32"));
        check("API.example.com", Some("api.example.com"));
        check("localhost", Some("localhost"));
        for wrong in
            ["", "1.2.3.4/33", "1.2.3", "a b", "*.example.com", "x; drop", "a..b", "::/129", "-/1"]
        {
            check(wrong, None);
        }
    }

    #[test]
    fn rules_survive_formatting_and_parsing() {
        let written = json!({"allow": ["1.1.1.1", "example.com"], "deny": ["0.0.0.0/0", "::/0"]});
        let rules = EgressRules::parse(EgressBase::Public, &written).unwrap();
        assert_eq!(rules.to_string(), "public -0.0.0.0/0 -::/0 +1.1.1.1/32 +example.com");
        assert_eq!(rules.blocks(), (vec!["1.1.1.1/32".to_owned()], vec!["0.0.0.0/0".to_owned()]));
        assert_eq!(rules.names().collect::<Vec<_>>(), ["example.com"]);
        let text = serde_json::to_string(&rules).unwrap();
        assert_eq!(serde_json::from_str::<EgressRules>(&text).unwrap(), rules);
        for wrong in [
            json!({"deny": ["example.com"]}),
            json!({"allow": "1.1.1.1"}),
            json!({"allow": [1]}),
            json!({"else": []}),
            json!({"deny": vec!["1.1.1.1"; MAX_DESTINATIONS + 1]}),
        ] {
            assert!(EgressRules::parse(EgressBase::All, &wrong).is_err(), "{wrong}");
        }
    }
}
