//! Prevents the server's own token from being sent to a vendor.
//!
//! `stead env e2b` sets `E2B_API_KEY` to the server's token, and the server reads the vendor's key from the same
//! variable. A server started from such a shell would send its token to the vendor with every request.

use config::{Secret, Settings};
use model::{AccessToken, TokenPrefix};

/// Clears the vendor keys that are the server's own token; returns their names.
pub(super) fn clear_own_token(settings: &mut Settings, token: &str) -> Vec<&'static str> {
    let own = AccessToken::read(token);
    let digits = own.with_prefix(TokenPrefix::Stead);
    let keys = [
        ("e2b.key", &mut settings.e2b.key),
        ("daytona.key", &mut settings.daytona.key),
        ("agentbay.key", &mut settings.agentbay.key),
    ];
    let mut cleared = Vec::new();
    for (name, key) in keys {
        let given = AccessToken::read(key.reveal());
        if given == own || given.canonical() == digits {
            *key = Secret::default();
            cleared.push(name);
        }
    }
    cleared
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{ConfigSources, load};

    #[test]
    fn the_own_token_is_never_used_as_a_vendor_key() {
        let digits = "0123456789abcdef0123456789abcdef01234567";
        let earlier = "c29tZSBlYXJsaWVyIHRva2VuIG9mIHRoaXMgaG9tZSE";
        for own in [format!("stead_{digits}"), earlier.to_owned()] {
            let mut sources = ConfigSources::default();
            sources.flag("home", "/h", "--home");
            sources.flag("e2b.key", AccessToken::read(&own).with_prefix(TokenPrefix::E2b), "--set");
            sources.flag("daytona.key", own.clone(), "--set");
            sources.flag("agentbay.key", "e2b_0123", "--set");
            let mut settings = load(&sources).unwrap().settings;
            assert_eq!(clear_own_token(&mut settings, &own), ["e2b.key", "daytona.key"]);
            assert_eq!(settings.e2b.key.reveal(), "");
            assert_eq!(settings.agentbay.key.reveal(), "e2b_0123");
        }
    }
}
