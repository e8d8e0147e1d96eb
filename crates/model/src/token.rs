//! The written forms of an access token.
//!
//! A token is 20 random bytes, written `stead_<40 hex>` or `e2b_<40 hex>`. Both are the same token: some
//! clients refuse a key without the second prefix before they send a request. Earlier versions wrote
//! tokens of another form; such a token is accepted as it is, and in both forms above with 20 bytes
//! derived from it.

use std::fmt::{self, Write};

/// Length of a token in bytes.
pub const TOKEN_BYTES: usize = 20;
/// Separates the derivation from every other use of the same secret.
const DERIVATION: &str = "stead 2026-11-17 hexadecimal form of an earlier token";

/// The prefix of a written token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenPrefix {
    /// `stead_`, the form that is stored.
    Stead,
    /// `e2b_`, the form that clients of E2B accept.
    E2b,
}

impl TokenPrefix {
    fn text(self) -> &'static str {
        match self {
            TokenPrefix::Stead => "stead_",
            TokenPrefix::E2b => "e2b_",
        }
    }
}

/// An access token. Its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessToken(Form);

#[derive(Clone, PartialEq, Eq)]
enum Form {
    /// 40 lower-case hexadecimal digits.
    Digits(String),
    /// A token of another form, as it was written.
    Opaque(String),
}

impl AccessToken {
    /// Returns the token with these random bytes.
    pub fn new(bytes: [u8; TOKEN_BYTES]) -> AccessToken {
        AccessToken(Form::Digits(hex(&bytes)))
    }

    /// Parses a token in any of its forms.
    pub fn read(text: &str) -> AccessToken {
        let digits = [TokenPrefix::Stead, TokenPrefix::E2b]
            .into_iter()
            .find_map(|prefix| text.strip_prefix(prefix.text()))
            .filter(|digits| digits.len() == 2 * TOKEN_BYTES)
            .filter(|digits| digits.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f')));
        AccessToken(match digits {
            Some(digits) => Form::Digits(digits.to_owned()),
            None => Form::Opaque(text.to_owned()),
        })
    }

    /// Returns the form that is stored, hashed and compared: the same for every form of one token,
    /// except that a token of an earlier version is stored as it was written.
    pub fn canonical(&self) -> String {
        match &self.0 {
            Form::Digits(digits) => format!("{}{digits}", TokenPrefix::Stead.text()),
            Form::Opaque(text) => text.clone(),
        }
    }

    /// Returns the token as `prefix` and 40 hexadecimal digits.
    pub fn with_prefix(&self, prefix: TokenPrefix) -> String {
        match &self.0 {
            Form::Digits(digits) => format!("{}{digits}", prefix.text()),
            Form::Opaque(text) => {
                let derived = blake3::derive_key(DERIVATION, text.as_bytes());
                format!("{}{}", prefix.text(), hex(&derived[..TOKEN_BYTES]))
            }
        }
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(…)")
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &str = "00112233445566778899aabbccddeeff00112233";

    #[test]
    fn both_prefixes_are_the_same_token() {
        let token = AccessToken::new(std::array::from_fn(|at| (at % 16) as u8 * 0x11));
        assert_eq!(token.canonical(), format!("stead_{DIGITS}"));
        assert_eq!(token.with_prefix(TokenPrefix::E2b), format!("e2b_{DIGITS}"));
        for text in [format!("stead_{DIGITS}"), format!("e2b_{DIGITS}")] {
            assert!(AccessToken::read(&text) == token, "{text}");
        }
        assert_eq!(format!("{token:?}"), "AccessToken(…)");
    }

    #[test]
    fn a_string_of_any_other_form_is_a_different_token() {
        let upper = DIGITS.to_uppercase();
        let check = |text: &str| assert_eq!(AccessToken::read(text).canonical(), text);
        check(DIGITS);
        check(&format!("e2b_{upper}"));
        check(&format!("e2b_{DIGITS}0"));
        check(&format!("e2b_{}", &DIGITS[1..]));
        check(&format!("e2b_stead_{DIGITS}"));
        check("");
    }

    #[test]
    fn an_earlier_token_has_a_form_that_every_client_accepts() {
        let earlier = AccessToken::read("Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmE");
        let e2b = earlier.with_prefix(TokenPrefix::E2b);
        assert_eq!(e2b.len(), "e2b_".len() + 40);
        let read = AccessToken::read(&e2b);
        assert_eq!(read.canonical(), earlier.with_prefix(TokenPrefix::Stead));
        assert_ne!(read.canonical(), earlier.canonical());
    }
}
