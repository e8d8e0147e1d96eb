//! Rules for single destinations, on top of what a sandbox may reach anyway.
//!
//! Pure. What is allowed goes before what is denied, and neither leads to where the rest does not: a rule
//! never opens this machine or a private network.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Destinations of one list.
const MOST: usize = 256;

/// What may be reached of all that could be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// What is reached where no rule says otherwise.
    pub base: Base,
    /// Reached whatever is denied.
    pub allow: Vec<Target>,
    /// Not reached.
    pub deny: Vec<Block>,
}

/// What rules are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Base {
    /// The internet.
    Public,
    /// Whatever this machine reaches.
    All,
}

/// Where a rule leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// Addresses.
    Block(Block),
    /// The addresses that a name has when the rule is put into force.
    Name(String),
}

/// Addresses that begin alike. There is only version 4 in a sandbox: blocks of version 6 are nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Block {
    /// The first of them, and how many bits they share.
    V4(Ipv4Addr, u8),
    /// The same of version 6.
    V6(Ipv6Addr, u8),
}

impl Block {
    /// All addresses.
    pub const EVERYTHING: Block = Block::V4(Ipv4Addr::UNSPECIFIED, 0);
}

impl Rules {
    /// Rules as a lease's `spec` writes them: `{"allow": […], "deny": […]}`.
    pub(super) fn parse(base: Base, value: &Value) -> Result<Rules, String> {
        let mut rules = Rules { base, allow: vec![], deny: vec![] };
        for (field, list) in value.as_object().into_iter().flatten() {
            let words = list
                .as_array()
                .and_then(|list| list.iter().map(Value::as_str).collect::<Option<Vec<&str>>>());
            let words = words.ok_or_else(|| format!("{field} is not a list of destinations"))?;
            if words.len() > MOST {
                return Err(format!("{field} has more than {MOST} destinations"));
            }
            match field.as_str() {
                "allow" => rules.allow = parsed(&words)?,
                "deny" => rules.deny = parsed(&words)?,
                _ => return Err(format!("{field:?} is neither allow nor deny")),
            }
        }
        Ok(rules)
    }

    /// The names among what is allowed.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.allow.iter().filter_map(|target| match target {
            Target::Name(name) => Some(name.as_str()),
            Target::Block(_) => None,
        })
    }

    /// The blocks of version 4 among what is allowed, and what is denied.
    pub(super) fn blocks(&self) -> (Vec<String>, Vec<String>) {
        let text = |block: &Block| match block {
            Block::V4(..) => Some(block.to_string()),
            Block::V6(..) => None,
        };
        let allowed = self.allow.iter().filter_map(|target| match target {
            Target::Block(block) => text(block),
            Target::Name(_) => None,
        });
        (allowed.collect(), self.deny.iter().filter_map(text).collect())
    }
}

fn parsed<T: FromStr<Err = String>>(words: &[&str]) -> Result<Vec<T>, String> {
    words.iter().map(|word| word.trim().parse()).collect()
}

impl FromStr for Block {
    type Err = String;

    fn from_str(text: &str) -> Result<Block, String> {
        let wrong = || format!("{text:?} is not an address or a block such as 10.0.0.0/8");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        if let Ok(address) = address.parse::<Ipv4Addr>() {
            let bits = bits.unwrap_or(32);
            let kept = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            let first = Ipv4Addr::from(u32::from(address) & kept);
            return if bits <= 32 { Ok(Block::V4(first, bits)) } else { Err(wrong()) };
        }
        let address: Ipv6Addr = address.parse().map_err(|_| wrong())?;
        let bits = bits.unwrap_or(128);
        if bits <= 128 { Ok(Block::V6(address, bits)) } else { Err(wrong()) }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        if let Ok(block) = text.parse() {
            return Ok(Target::Block(block));
        }
        if text.starts_with("*.") {
            return Err(format!("{text:?}: all names below one are not known; name each of them"));
        }
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let mut labels = text.split('.');
        let is_name = text.len() <= 253
            && text.bytes().any(|byte| byte.is_ascii_alphabetic())
            && labels.all(|label| (1..=63).contains(&label.len()) && label.bytes().all(is_letter));
        if !is_name {
            return Err(format!("{text:?} is not an address, a block or a name"));
        }
        Ok(Target::Name(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Block::V4(address, bits) => write!(f, "{address}/{bits}"),
            Block::V6(address, bits) => write!(f, "{address}/{bits}"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Block(block) => block.fmt(f),
            Target::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.base {
            Base::Public => "public",
            Base::All => "all",
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

/// Both are written as text.
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

text!(Block);
text!(Target);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn destinations_are_blocks_or_names() {
        let check = |text: &str, expected: Option<&str>| {
            let found = text.parse::<Target>().ok().map(|target| target.to_string());
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
    fn rules_are_read_as_they_are_written() {
        let written = json!({"allow": ["1.1.1.1", "example.com"], "deny": ["0.0.0.0/0", "::/0"]});
        let rules = Rules::parse(Base::Public, &written).unwrap();
        assert_eq!(rules.to_string(), "public -0.0.0.0/0 -::/0 +1.1.1.1/32 +example.com");
        assert_eq!(rules.blocks(), (vec!["1.1.1.1/32".to_owned()], vec!["0.0.0.0/0".to_owned()]));
        assert_eq!(rules.names().collect::<Vec<_>>(), ["example.com"]);
        let text = serde_json::to_string(&rules).unwrap();
        assert_eq!(serde_json::from_str::<Rules>(&text).unwrap(), rules);
        for wrong in [
            json!({"deny": ["example.com"]}),
            json!({"allow": "1.1.1.1"}),
            json!({"allow": [1]}),
            json!({"else": []}),
            json!({"deny": vec!["1.1.1.1"; MOST + 1]}),
        ] {
            assert!(Rules::parse(Base::All, &wrong).is_err(), "{wrong}");
        }
    }
}
