//! Configuration files of other programs: one entry is set, and every other byte that means something is kept.

use std::fmt;

use anyhow::{Context, bail};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

/// The members of a JSON object in their order, with their values as they were written.
#[derive(Debug, Default)]
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

impl Members {
    fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }

    fn set(&mut self, key: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    fn write(&self, indent: &str) -> anyhow::Result<String> {
        let lines: Vec<String> = self
            .0
            .iter()
            .map(|(name, value)| {
                Ok(format!("{indent}  {}: {}", serde_json::to_string(name)?, value.get()))
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(format!("{{\n{}\n{indent}}}", lines.join(",\n")))
    }
}

/// Sets `object[section][name]` in the text of a JSON file; an empty text is an empty object.
pub(super) fn set_json(
    text: &str,
    section: &str,
    name: &str,
    entry: &Value,
) -> anyhow::Result<String> {
    let parse = |text: &str, what: &str| -> anyhow::Result<Members> {
        serde_json::from_str(text).with_context(|| format!("{what} is not a JSON object"))
    };
    let mut file =
        if text.trim().is_empty() { Members::default() } else { parse(text, "the file")? };
    let mut servers = match file.get(section) {
        Some(servers) => parse(servers.get(), section)?,
        None => Members::default(),
    };
    let entry = serde_json::to_string_pretty(entry)?.replace('\n', "\n    ");
    servers.set(name, RawValue::from_string(entry)?);
    file.set(section, RawValue::from_string(servers.write("  ")?)?);
    Ok(format!("{}\n", file.write("")?))
}

/// Sets the table `[section.name]` in the text of a TOML file. Comments and other tables are kept.
pub(super) fn set_toml(
    text: &str,
    section: &str,
    name: &str,
    entry: &str,
) -> anyhow::Result<String> {
    let before: toml::Table = text.parse().context("the file is not valid TOML")?;
    let (header, nested) = (format!("[{section}.{name}]"), format!("[{section}.{name}."));
    let (mut kept, mut inside) = (String::new(), false);
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with('[') {
            inside = trimmed.starts_with(&header) || trimmed.starts_with(&nested);
        }
        if !inside {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    let separator = if kept.trim().is_empty() { "" } else { "\n" };
    let written = format!("{}{separator}{header}\n{entry}", kept.trim_start_matches('\n'));
    let after: toml::Table = written.parse().with_context(|| {
        format!("the file defines {section:?} in a form that cannot be extended")
    })?;
    if without(before, section, name) != without(after, section, name) {
        bail!("the entry cannot be set without changing others");
    }
    Ok(written)
}

/// Returns the table without the entry, and without a section that has no other.
fn without(mut table: toml::Table, section: &str, name: &str) -> toml::Table {
    let mut is_empty = false;
    if let Some(toml::Value::Table(entries)) = table.get_mut(section) {
        entries.remove(name);
        is_empty = entries.is_empty();
    }
    if is_empty {
        table.remove(section);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn other_members_of_a_json_file_keep_their_text() {
        let text = "{\"z\": 1.50, \"servers\": {\"other\": {\"a\":[ 1,2 ]}}, \"a\": \"\\u00e9\"}";
        let written = set_json(text, "servers", "stead", &json!({"command": "s"})).unwrap();
        assert_eq!(
            written,
            "{\n  \"z\": 1.50,\n  \"servers\": {\n    \"other\": {\"a\":[ 1,2 ]},\n    \"stead\": {\n      \
             \"command\": \"s\"\n    }\n  },\n  \"a\": \"\\u00e9\"\n}\n"
        );
        let again = set_json(&written, "servers", "stead", &json!({"command": "s"})).unwrap();
        assert_eq!(again, written);
    }

    #[test]
    fn an_empty_or_missing_file_becomes_one_entry() {
        let written = set_json("", "mcpServers", "stead", &json!({"args": []})).unwrap();
        let parsed: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(parsed, json!({"mcpServers": {"stead": {"args": []}}}));
        let written = set_toml("", "mcp_servers", "stead", "command = \"s\"\n").unwrap();
        assert_eq!(written, "[mcp_servers.stead]\ncommand = \"s\"\n");
    }

    #[test]
    fn a_file_that_is_not_understood_is_refused() {
        let entry = json!({});
        for text in ["[1]", "{\"servers\": 1}", "{// comment\n}", "{"] {
            assert!(set_json(text, "servers", "stead", &entry).is_err(), "{text}");
        }
        for text in ["a =", "mcp_servers = {other = {}}"] {
            assert!(set_toml(text, "mcp_servers", "stead", "x = 1\n").is_err(), "{text}");
        }
    }

    #[test]
    fn other_tables_of_a_toml_file_keep_their_comments() {
        let text = "model = \"m\" # mine\n\n[mcp_servers.stead]\ncommand = \"old\"\n\n\
            [mcp_servers.stead.env]\nA = \"1\"\n\n[mcp_servers.other]\ncommand = \"o\" # keep\n";
        let written = set_toml(text, "mcp_servers", "stead", "command = \"new\"\n").unwrap();
        assert_eq!(
            written,
            "model = \"m\" # mine\n\n[mcp_servers.other]\ncommand = \"o\" # keep\n\n\
             [mcp_servers.stead]\ncommand = \"new\"\n"
        );
    }
}
