//! The sections of a shell's state that the server reads: the environment, and that of the first shell.

use std::collections::BTreeMap;

use wire::Sections;

use model::{Env, TerminalState};

/// The section with the environment of the first shell. It is not sent to shells.
pub const BASE: &str = "stead.base";

/// Returns the sections that are sent to a host: all except [`BASE`].
pub fn for_host(state: TerminalState) -> Sections {
    state.sections.into_iter().filter(|(name, _)| name != BASE).collect()
}

/// Returns the difference from `base` to `env`; a removed name maps to `None`.
pub fn delta(base: &Env, env: &Env) -> BTreeMap<String, Option<String>> {
    let set = env
        .iter()
        .filter(|(name, value)| base.get(*name) != Some(value))
        .map(|(name, value)| (name.clone(), Some(value.clone())));
    let gone = base.keys().filter(|name| !env.contains_key(*name)).map(|name| (name.clone(), None));
    set.chain(gone).collect()
}

/// Parses an `env` section: `NAME=value` strings, each terminated by a zero byte.
pub fn environment(bytes: &[u8]) -> Env {
    bytes
        .split(|byte| *byte == 0)
        .filter_map(|entry| {
            let at = entry.iter().position(|byte| *byte == b'=')?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            Some((text(&entry[..at]), text(&entry[at + 1..])))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_contains_set_and_removed_variables() {
        let env = |text: &str| environment(text.as_bytes());
        let base = env("HOME=/root\0PATH=/bin\0LANG=C\0");
        let now = env("HOME=/root\0PATH=/v/bin:/bin\0A=a=b\nc\0");
        let delta = delta(&base, &now);
        let expected: BTreeMap<String, Option<String>> =
            [("A", Some("a=b\nc")), ("LANG", None), ("PATH", Some("/v/bin:/bin"))]
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.map(str::to_owned)))
                .collect();
        assert_eq!(delta, expected);
    }
}
