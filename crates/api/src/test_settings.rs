//! Settings for unit tests.

use config::{ConfigSources, Settings, load};

/// Returns the default settings with these flags.
pub(crate) fn settings(flags: &[(&str, &str)]) -> Settings {
    let mut sources = ConfigSources::default();
    sources.flag("home", "/h", "--home");
    for (key, value) in flags {
        sources.flag(key, *value, "--set");
    }
    load(&sources).unwrap().settings
}
