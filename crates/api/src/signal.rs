//! Signals by name.

use serde::Deserialize;
use utoipa::ToSchema;

use super::error::Problem;

/// A signal to send.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"signal": "INT"}))]
pub(super) struct SignalRequest {
    /// Name of the signal, with or without `SIG`, or its number.
    #[schema(value_type = String, example = "INT")]
    signal: SignalName,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum SignalName {
    Name(String),
    Number(i32),
}

const SIGNALS: &[(&str, i32)] = &[
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
    /// Returns the number of a supported signal.
    pub(super) fn number(&self) -> Result<i32, Problem> {
        let found = match &self.signal {
            SignalName::Name(name) => {
                let upper = name.to_ascii_uppercase();
                let short = upper.strip_prefix("SIG").unwrap_or(&upper);
                SIGNALS.iter().find(|(known, _)| *known == short)
            }
            SignalName::Number(number) => SIGNALS.iter().find(|(_, known)| known == number),
        };
        found.map(|(_, number)| *number).ok_or_else(|| {
            let names: Vec<&str> = SIGNALS.iter().map(|(name, _)| *name).collect();
            Problem::body("/signal", format!("must be one of {}", names.join(", ")))
        })
    }
}

/// Returns the name of a signal, or its number if it has none here.
pub(super) fn name(number: i32) -> String {
    let known = SIGNALS.iter().find(|(_, known)| *known == number);
    known.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}
