//! Signals by name.

use serde::Deserialize;
use utoipa::ToSchema;

use super::error::Problem;

/// A signal.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SignalRequest {
    /// Its name, with or without `SIG`, or its number.
    #[schema(value_type = String, example = "INT")]
    signal: SignalName,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum SignalName {
    Name(String),
    Number(i32),
}

const NAMES: &[(&str, i32)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("KILL", 9),
    ("USR1", 10),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("WINCH", 28),
];

impl SignalRequest {
    /// Its number, if it is one we send.
    pub(super) fn number(&self) -> Result<i32, Problem> {
        let found = match &self.signal {
            SignalName::Name(name) => {
                let upper = name.to_ascii_uppercase();
                let short = upper.strip_prefix("SIG").unwrap_or(&upper);
                NAMES.iter().find(|(known, _)| *known == short)
            }
            SignalName::Number(number) => NAMES.iter().find(|(_, known)| known == number),
        };
        found.map(|(_, number)| *number).ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            Problem::body("/signal", format!("must be one of {}", names.join(", ")))
        })
    }
}

/// The name of a signal that ended something, or its number.
pub(super) fn name(number: i32) -> String {
    let known = NAMES.iter().find(|(_, known)| *known == number);
    known.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}
