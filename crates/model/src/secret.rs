//! Recognizes environment variables whose values are secrets, by their names.

/// Parts of a name that suggest a secret in any position, as in `PGPASSWORD`.
const PARTS: [&str; 8] =
    ["PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "CREDENTIAL", "TOKEN", "APIKEY", "PRIVATE_KEY"];

/// Words between underscores that suggest a secret; inside a longer word they do not, as in `KEYBOARD`.
const WORDS: [&str; 5] = ["KEY", "KEYS", "PASS", "COOKIE", "COOKIES"];

/// Words that suggest a secret at the end of a longer name: not in `PWD` or `SSH_AUTH_SOCK`.
const LAST_WORDS: [&str; 2] = ["PWD", "AUTH"];

/// Returns whether the name of a variable suggests that its value is a secret.
#[must_use]
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    PARTS.iter().any(|part| name.contains(part))
        || name.split('_').any(|word| WORDS.contains(&word))
        || name.rsplit_once('_').is_some_and(|(_, last)| LAST_WORDS.contains(&last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_recognized() {
        for name in [
            "AWS_SECRET_ACCESS_KEY",
            "OPENAI_API_KEY",
            "GITHUB_TOKEN",
            "github_token",
            "PGPASSWORD",
            "MYSQL_PWD",
            "DB_PASS",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GPG_PASSPHRASE",
            "REDIS_AUTH",
            "SESSION_COOKIE",
            "KEY",
        ] {
            assert!(looks_secret(name), "{name}");
        }
        for name in ["PATH", "PWD", "OLDPWD", "KEYBOARD", "SSH_AUTH_SOCK", "AUTHOR", "COMPASS", ""]
        {
            assert!(!looks_secret(name), "{name}");
        }
    }
}
