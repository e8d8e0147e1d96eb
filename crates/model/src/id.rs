//! Typed ids. An id is validated once, when it is parsed.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A string that is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not {kind}: {why}")]
pub struct BadId {
    /// The kind of id, with its article, e.g. `a thread id`.
    pub kind: &'static str,
    /// Why the string is invalid.
    pub why: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns the id as a string.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                $check(text).map_err(|why| BadId { kind: $kind, why })?;
                Ok(Self(text.into()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadId;
            fn try_from(text: String) -> Result<Self, BadId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.as_ref().into()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

macro_rules! generated {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $prefix:literal) => {
        id!($(#[$doc])* $name, $kind, $name::check);

        impl $name {
            /// The prefix of every id of this kind.
            pub const PREFIX: &'static str = $prefix;

            fn check(text: &str) -> Result<(), &'static str> {
                check_generated(text, $prefix)
            }

            /// Returns the id with this UUID.
            #[must_use]
            pub fn from_uuid(uuid: Uuid) -> Self {
                Self(format!("{}{}", $prefix, uuid.simple()).into())
            }

            /// Returns a unique id. Ids sort by creation time. This is the only function of the model
            /// that reads a clock; no transition depends on it.
            #[must_use]
            pub fn fresh() -> Self {
                Self::from_uuid(Uuid::now_v7())
            }
        }
    };
}

id!(
    /// One conversation or task; the client chooses it.
    ThreadId, "a thread id", check_thread
);
id!(
    /// A template of a compatible API.
    TemplateId, "a template id", check_thread
);
id!(
    /// A build of a template.
    BuildId, "a build id", check_thread
);
id!(
    /// A project: its prefix, `-`, eight hexadecimal digits.
    ProjectId, "a project id", check_project
);
generated!(
    /// A durable shell and its output.
    TerminalId, "a terminal id", "term_"
);
generated!(
    /// A session of a thread.
    SessionId, "a session id", "sess_"
);
generated!(
    /// A durable claim on compute.
    LeaseId, "a lease id", "lease_"
);
generated!(
    /// An instance of a lease, running or ended.
    InstanceId, "an instance id", "inst_"
);
generated!(
    /// A command of a terminal.
    CommandId, "a command id", "cmd_"
);
generated!(
    /// A message of a thread.
    MessageId, "a message id", "msg_"
);
generated!(
    /// An access token; not the secret.
    TokenId, "a token id", "tok_"
);
generated!(
    /// A share link to a terminal; not the secret in it.
    ShareId, "a share id", "share_"
);
generated!(
    /// An agent's request to a person.
    HandoffId, "a hand-off id", "handoff_"
);

impl ProjectId {
    /// Returns the default project.
    #[must_use]
    pub fn default_project() -> Self {
        Self("default-00000000".into())
    }

    /// Returns the id with this prefix and suffix.
    pub fn from_parts(prefix: &str, suffix: u32) -> Result<Self, BadId> {
        format!("{prefix}-{suffix:08x}").parse()
    }

    /// Returns the part before the last dash.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.0.rsplit_once('-').map_or("", |(prefix, _)| prefix)
    }
}

impl ThreadId {
    /// Refuses whitespace in the id of a new thread. Threads of earlier versions may have it.
    pub fn check_new(&self) -> Result<(), BadId> {
        match self.0.chars().any(char::is_whitespace) {
            true => Err(BadId { kind: "a thread id", why: "it contains a space" }),
            false => Ok(()),
        }
    }

    /// Returns whether the server generated this id for a sandbox: `sb_` and 32 hexadecimal digits.
    pub fn is_of_sandbox(&self) -> bool {
        self.0
            .strip_prefix("sb_")
            .is_some_and(|digits| digits.len() == 32 && digits.bytes().all(is_hex))
    }
}

fn check_thread(text: &str) -> Result<(), &'static str> {
    match text {
        "" => Err("it is empty"),
        "." | ".." => Err("it is a reserved file name"),
        _ if text.len() > 200 => Err("it is longer than 200 bytes"),
        _ if text.contains('/') => Err("it contains a slash"),
        _ if text.chars().any(char::is_control) => Err("it contains a control character"),
        _ => Ok(()),
    }
}

fn check_project(text: &str) -> Result<(), &'static str> {
    let (prefix, suffix) = text.rsplit_once('-').ok_or("it has no dash")?;
    if suffix.len() != 8 || !suffix.bytes().all(is_hex) {
        return Err("it does not end in eight hexadecimal digits");
    }
    check_prefix(prefix)
}

/// Checks the prefix of a project id against `^[a-z][a-z0-9-]{0,31}$`.
fn check_prefix(prefix: &str) -> Result<(), &'static str> {
    let mut bytes = prefix.bytes();
    if !bytes.next().is_some_and(|first| first.is_ascii_lowercase()) {
        return Err("its prefix does not start with a letter (a-z)");
    }
    if prefix.len() > 32 {
        return Err("its prefix is longer than 32 characters");
    }
    if !bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Err("its prefix contains characters other than a-z, 0-9 and dash");
    }
    Ok(())
}

fn check_generated(text: &str, prefix: &str) -> Result<(), &'static str> {
    let digits = text.strip_prefix(prefix).ok_or("it has the wrong prefix")?;
    if digits.len() != 32 || !digits.bytes().all(is_hex) {
        return Err("it does not end in 32 hexadecimal digits");
    }
    Ok(())
}

/// Accepts only lower-case digits, so that each id has one spelling.
fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_id_is_a_valid_file_name() {
        for good in ["a", "main", "T 1", "日本", "...", "-", &"x".repeat(200)] {
            assert_eq!(good.parse::<ThreadId>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a/b", "a\nb", "\0", "a\u{7f}", "\u{85}", &"x".repeat(201)] {
            assert!(bad.parse::<ThreadId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_new_thread_id_has_no_spaces() {
        for (text, expected) in [("a", true), ("a b", false), (" a", false), ("a\u{a0}b", false)] {
            let id: ThreadId = text.parse().unwrap();
            assert_eq!(id.check_new().is_ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_project_id_is_prefix_dash_eight_hex() {
        for good in ["a-00000000", "my-api-a7b3c2d1", "x1--deadbeef"] {
            assert_eq!(good.parse::<ProjectId>().unwrap().as_str(), good);
        }
        for bad in ["a", "a-0000000", "a-0000000G", "A-00000000", "1a-00000000", "-00000000"] {
            assert!(bad.parse::<ProjectId>().is_err(), "{bad:?}");
        }
        assert!(format!("{}-00000000", "p".repeat(33)).parse::<ProjectId>().is_err());
        assert_eq!("my-api-a7b3c2d1".parse::<ProjectId>().unwrap().prefix(), "my-api");
        assert_eq!(ProjectId::from_parts("web", 10).unwrap().as_str(), "web-0000000a");
        assert!(ProjectId::default_project().as_str().parse::<ProjectId>().is_ok());
    }

    #[test]
    fn generated_ids_are_unique_sorted_and_typed() {
        let ids: Vec<_> = (0..1000).map(|_| TerminalId::fresh()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        let text = ids[0].to_string();
        assert_eq!(text.parse::<TerminalId>().unwrap(), ids[0]);
        assert!(text.parse::<LeaseId>().is_err());
        assert!(text.to_uppercase().parse::<TerminalId>().is_err());
        assert!(serde_json::from_str::<TerminalId>("\"term_../../etc\"").is_err());
    }
}
