//! Parsers for the values of settings.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

/// Format of the log on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Human-readable lines.
    Text,
    /// One JSON object per line.
    Json,
}

/// Minimum level of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// What happens to the compute of an expired session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionExpiryAction {
    Keep,
    /// Freeze the processes.
    Pause,
    /// End the processes; the durable state remains.
    Stop,
}

/// How terminals run in the sandboxes of a vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VendorRuntime {
    /// Our host program runs inside the sandbox.
    Host,
    /// The vendor's API runs each command; there is no PTY.
    Remote,
}

/// The backend of the files below a route of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteBackend {
    /// A directory on disk.
    Filesystem,
    /// Memory, with a log on disk.
    State,
    /// Rows of the database.
    Store,
}

/// A type that a setting can have.
pub(super) trait Value: Sized {
    fn parse(text: &str) -> Result<Self, String>;
}

/// Parses `text` into `slot`.
pub(super) fn put<T: Value>(slot: &mut T, text: &str) -> Result<(), String> {
    *slot = T::parse(text.trim())?;
    Ok(())
}

impl Value for String {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("must not be empty".into()) } else { Ok(text.into()) }
    }
}

/// A string that logs and `stead config` never show.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "Secret(none)" } else { "Secret(…)" })
    }
}

impl Value for Secret {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
    }
}

impl Value for PathBuf {
    fn parse(text: &str) -> Result<Self, String> {
        std::path::absolute(text).map_err(|error| error.to_string())
    }
}

impl Value for Option<PathBuf> {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { PathBuf::parse(text).map(Some) }
    }
}

impl Value for Option<String> {
    fn parse(text: &str) -> Result<Self, String> {
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }
}

impl Value for Vec<String> {
    fn parse(text: &str) -> Result<Self, String> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        Ok(items.map(str::to_owned).collect())
    }
}

impl Value for BTreeMap<String, RouteBackend> {
    fn parse(text: &str) -> Result<Self, String> {
        let mut routes = BTreeMap::new();
        for item in Vec::parse(text)? {
            let (prefix, backend) = item
                .split_once('=')
                .ok_or_else(|| format!("expected PREFIX=BACKEND instead of {item:?}"))?;
            if !prefix.trim().starts_with('/') {
                return Err(format!("the prefix {prefix:?} does not start with a slash"));
            }
            routes.insert(prefix.trim().to_owned(), RouteBackend::parse(backend.trim())?);
        }
        Ok(routes)
    }
}

impl Value for bool {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "true" | "1" | "yes" | "on" => Ok(true),
            "false" | "0" | "no" | "off" | "" => Ok(false),
            _ => Err("expected true or false".into()),
        }
    }
}

impl Value for SocketAddr {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(port) = text.strip_prefix("localhost:") {
            let port = port.parse().map_err(|_| "expected localhost:PORT".to_owned())?;
            return Ok((Ipv4Addr::LOCALHOST, port).into());
        }
        text.parse().map_err(|_| "expected ADDRESS:PORT, such as 127.0.0.1:7832".into())
    }
}

impl Value for u64 {
    /// Parses a count, or a size with a unit.
    fn parse(text: &str) -> Result<Self, String> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| "expected a number".to_owned())?;
        let factor: u64 = match unit.trim() {
            "" | "B" => 1,
            "KiB" | "K" | "k" => 1 << 10,
            "MiB" | "M" => 1 << 20,
            "GiB" | "G" => 1 << 30,
            _ => return Err("expected a number, optionally with KiB, MiB or GiB".into()),
        };
        number.checked_mul(factor).ok_or_else(|| "too large".into())
    }
}

impl Value for usize {
    fn parse(text: &str) -> Result<Self, String> {
        usize::try_from(u64::parse(text)?).map_err(|_| "too large".into())
    }
}

impl Value for f64 {
    fn parse(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| "expected a number".to_owned())
    }
}

impl Value for Duration {
    fn parse(text: &str) -> Result<Self, String> {
        parse_duration(text)
    }
}

/// Parses `250ms`, `10s`, `30m`, `24h`, `30d`, or a bare number of seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| "expected a duration, such as 30s".to_owned())?;
    let millis: u64 = match unit.trim() {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("expected a duration in ms, s, m, h or d".into()),
    };
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(|| "too long".into())
}

/// Implements `Value` for an enum whose variants are single words.
macro_rules! words {
    ($name:ident { $($word:literal => $variant:ident),* }) => {
        impl Value for $name {
            fn parse(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok($name::$variant),)*
                    _ => Err(concat!("expected one of:" $(, " ", $word)*).into()),
                }
            }
        }
    };
}

words!(LogFormat { "text" => Text, "json" => Json });
words!(LogLevel {
    "error" => Error, "warn" => Warn, "info" => Info, "debug" => Debug, "trace" => Trace
});
words!(SessionExpiryAction { "keep" => Keep, "pause" => Pause, "stop" => Stop });
words!(RouteBackend { "filesystem" => Filesystem, "state" => State, "store" => Store });
words!(VendorRuntime { "host" => Host, "remote" => Remote });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_have_units() {
        let time = |text: &str| Duration::parse(text).map(|time| time.as_millis()).ok();
        assert_eq!(
            ["250ms", "10s", "7", "2m", "24h", "30d", "x", "1y", ""].map(time),
            [
                Some(250),
                Some(10_000),
                Some(7_000),
                Some(120_000),
                Some(86_400_000),
                Some(2_592_000_000),
                None,
                None,
                None
            ]
        );
        let size = |text: &str| u64::parse(text).ok();
        assert_eq!(
            ["12", "1KiB", "16MiB", "2G", "-1", "1TB", "99999999999999999999", "99999999999GiB"]
                .map(size),
            [Some(12), Some(1024), Some(16 << 20), Some(2 << 30), None, None, None, None]
        );
    }

    #[test]
    fn routes_are_pairs_of_a_prefix_and_a_backend() {
        let routes = |text: &str| BTreeMap::<String, RouteBackend>::parse(text);
        let expected = [("/a".to_owned(), RouteBackend::Store), ("/b".into(), RouteBackend::State)];
        assert_eq!(routes("/a=store, /b = state"), Ok(expected.into()));
        assert_eq!(routes(""), Ok(BTreeMap::new()));
        for bad in ["/a", "a=store", "/a=disk", "=state"] {
            assert!(routes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_address_needs_a_port() {
        assert!(SocketAddr::parse("127.0.0.1").is_err());
        assert_eq!(SocketAddr::parse("localhost:80"), Ok(([127, 0, 0, 1], 80).into()));
        assert!(SocketAddr::parse("[::1]:0").is_ok());
    }
}
