//! Authentication: bearer tokens, one-time sign-in codes, and the browser sessions that codes are exchanged for.
//!
//! A token is 20 random bytes ([`AccessToken`] has its written forms), any other secret 32. Only the
//! blake3 hash is stored, and compared in constant time. A code lives in memory for 15 minutes and is
//! exchanged for one session; a token is never part of a URL.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::{Mutex, RwLock};
use subtle::ConstantTimeEq;

use model::{AccessToken, Timestamp, TokenId, TokenPrefix};
use store::{Store, StoreError, Token};

/// Lifetime of a sign-in link.
pub const CODE_LIFETIME: Duration = Duration::from_secs(15 * 60);
/// Lifetime of a browser session.
pub const SESSION_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// Unused codes at a time; one more replaces the oldest.
const MAX_CODES: usize = 64;
/// Browser sessions at a time; one more replaces the oldest.
const MAX_SESSIONS: usize = 256;
/// Wrong secrets that are answered with 401; the next ones are answered with 429.
const MAX_FAILURES: f64 = 50.0;
/// How fast the count of wrong secrets decays.
const FAILURE_DECAY_PER_SECOND: f64 = 5.0;
/// The stored scope of an access token.
const SCOPE_TOKEN: &str = "all";
/// The stored scope of a browser session.
const SCOPE_BROWSER: &str = "browser";

/// The hash of a secret. The secret itself is never stored.
#[derive(Clone, Copy)]
pub struct Digest([u8; 32]);

impl Digest {
    pub fn of(secret: &str) -> Digest {
        Digest(*blake3::hash(secret.as_bytes()).as_bytes())
    }

    /// A digest that was read from the store.
    pub(super) fn stored(hash: [u8; 32]) -> Digest {
        Digest(hash)
    }

    pub(super) fn bytes(self) -> [u8; 32] {
        self.0
    }

    /// Compares in constant time.
    pub(super) fn is(&self, other: &Digest) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// Returns 256 random bits, encoded for a URL, a header or a cookie.
pub fn secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// The authenticated caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Principal {
    /// Any caller: the server runs with `no_auth`.
    Anyone,
    /// The holder of the access token.
    Token,
    /// A signed-in browser.
    Browser,
}

/// Why a secret could not be generated or stored.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("cannot generate a random secret")]
    Random(#[from] getrandom::Error),
    #[error("cannot store the hash of a secret")]
    Store(#[from] StoreError),
}

/// A valid access token or browser session.
struct KnownToken {
    digest: Digest,
    principal: Principal,
    token_id: TokenId,
    until: Option<Timestamp>,
}

/// A sign-in code that is not used yet.
struct SignInCode {
    digest: Digest,
    until: Instant,
}

struct Failures {
    count: f64,
    at: Instant,
}

/// All valid credentials.
pub struct Auth {
    open: bool,
    store: Store,
    known: RwLock<Vec<KnownToken>>,
    codes: Mutex<VecDeque<SignInCode>>,
    failures: Mutex<Failures>,
}

impl Auth {
    /// Accepts `token` and the credentials in the store. A new token revokes the one before it, and signs out the
    /// browsers that were signed in by it.
    pub async fn load(store: Store, token: &str, mode: AuthMode) -> Result<Auth, AuthError> {
        let now = Timestamp::now();
        let token = AccessToken::read(token);
        let digest = Digest::of(&token.canonical());
        let mut known: Vec<KnownToken> = Vec::new();
        for (token, hash) in store.live_tokens(now).await? {
            let principal = match token.scope.as_str() {
                SCOPE_TOKEN => Principal::Token,
                SCOPE_BROWSER => Principal::Browser,
                // A scope of a later version.
                _ => continue,
            };
            let (token_id, until) = (token.token_id, token.expires_at);
            known.push(KnownToken { digest: Digest(hash), principal, token_id, until });
        }
        if !known.iter().any(|one| one.principal == Principal::Token && one.digest.is(&digest)) {
            // The file was replaced, or this is the first start.
            for old in known.drain(..) {
                store.revoke_token(&old.token_id, now).await?;
            }
            let row = row("home", SCOPE_TOKEN, now, None);
            store.add_token(&row, digest.0).await?;
            let token_id = row.token_id;
            known.push(KnownToken { digest, principal: Principal::Token, token_id, until: None });
        }
        // A token of an earlier version is also accepted in the form that `stead env` prints.
        let digits = Digest::of(&token.with_prefix(TokenPrefix::Stead));
        let of_home =
            |one: &&KnownToken| one.principal == Principal::Token && one.digest.is(&digest);
        if !digits.is(&digest)
            && let Some(token_id) = known.iter().find(of_home).map(|one| one.token_id.clone())
        {
            let principal = Principal::Token;
            known.push(KnownToken { digest: digits, principal, token_id, until: None });
        }
        Ok(Auth {
            open: mode == AuthMode::Disabled,
            store,
            known: RwLock::new(known),
            codes: Mutex::default(),
            failures: Mutex::new(Failures { count: 0.0, at: Instant::now() }),
        })
    }

    /// Whether authentication is disabled.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Whether this is the access token, in any of its forms.
    pub fn token(&self, given: &str) -> bool {
        self.holds(&AccessToken::read(given).canonical(), Principal::Token)
    }

    /// Whether this is the secret of a browser session.
    pub fn session(&self, given: &str) -> bool {
        self.holds(given, Principal::Browser)
    }

    fn holds(&self, given: &str, as_principal: Principal) -> bool {
        let (given, now) = (Digest::of(given), Timestamp::now());
        let known = self.known.read();
        // No early return: the duration must not depend on which credential matches.
        known.iter().fold(false, |found, one| {
            let lives = one.until.is_none_or(|until| until > now);
            found | (lives & (one.principal == as_principal) & one.digest.is(&given))
        })
    }

    /// Creates a code that signs one browser in, once.
    pub fn code(&self, now: Instant) -> Result<String, getrandom::Error> {
        let code = secret()?;
        let mut codes = self.codes.lock();
        codes.retain(|one| one.until > now);
        while codes.len() >= MAX_CODES {
            codes.pop_front();
        }
        codes.push_back(SignInCode { digest: Digest::of(&code), until: now + CODE_LIFETIME });
        Ok(code)
    }

    /// Exchanges a code for the secret of a session; returns `None` if the code is unknown, used or expired.
    pub async fn sign_in(&self, code: &str, now: Instant) -> Result<Option<String>, AuthError> {
        if !self.take(code, now) {
            return Ok(None);
        }
        let (session, at) = (secret()?, Timestamp::now());
        let until = at.checked_add(SESSION_LIFETIME).unwrap_or(Timestamp::MAX);
        let row = row("browser", SCOPE_BROWSER, at, Some(until));
        let digest = Digest::of(&session);
        self.store.add_token(&row, digest.0).await?;
        let oldest = {
            let mut known = self.known.write();
            let (token_id, until) = (row.token_id, Some(until));
            known.push(KnownToken { digest, principal: Principal::Browser, token_id, until });
            let browser = |one: &KnownToken| one.principal == Principal::Browser;
            let many = known.iter().filter(|one| browser(one)).count() > MAX_SESSIONS;
            let first = known.iter().position(browser).filter(|_| many);
            first.map(|at| known.remove(at))
        };
        if let Some(oldest) = oldest {
            self.store.revoke_token(&oldest.token_id, at).await?;
        }
        Ok(Some(session))
    }

    fn take(&self, code: &str, now: Instant) -> bool {
        let given = Digest::of(code);
        let mut codes = self.codes.lock();
        let found = codes.iter().position(|one| one.digest.is(&given));
        found.and_then(|at| codes.remove(at)).is_some_and(|one| one.until > now)
    }

    /// Ends a browser session.
    pub async fn sign_out(&self, session: &str) -> Result<(), AuthError> {
        let given = Digest::of(session);
        let ended = {
            let mut known = self.known.write();
            let browser = |one: &KnownToken| one.principal == Principal::Browser;
            let found = known.iter().position(|one| browser(one) && one.digest.is(&given));
            found.map(|at| known.remove(at))
        };
        if let Some(ended) = ended {
            self.store.revoke_token(&ended.token_id, Timestamp::now()).await?;
        }
        Ok(())
    }

    /// Counts a wrong secret; returns whether there were too many recently. A valid secret is always
    /// accepted, so that failures of others cannot lock the owner out.
    pub fn failed(&self, now: Instant) -> bool {
        let mut failures = self.failures.lock();
        let decayed = now.duration_since(failures.at).as_secs_f64() * FAILURE_DECAY_PER_SECOND;
        failures.count = (failures.count - decayed).max(0.0) + 1.0;
        failures.at = now;
        if failures.count > MAX_FAILURES {
            failures.count = MAX_FAILURES;
            return true;
        }
        false
    }
}

/// Whether requests must authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    Required,
    /// The setting `no_auth`.
    Disabled,
}

fn row(name: &str, scope: &str, created_at: Timestamp, expires_at: Option<Timestamp>) -> Token {
    Token {
        token_id: TokenId::fresh(),
        name: name.into(),
        scope: scope.into(),
        created_at,
        expires_at,
        revoked_at: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    async fn load(home: &TempDir, token: &str) -> Auth {
        let store = Store::open(home.path()).unwrap();
        Auth::load(store, token, AuthMode::Required).await.unwrap()
    }

    #[tokio::test]
    async fn a_code_signs_in_once_and_expires() {
        let (home, now) = (tempfile::tempdir().unwrap(), Instant::now());
        let auth = load(&home, "token").await;
        assert!(auth.token("token") && !auth.token("tokem") && !auth.token(""));
        let code = auth.code(now).unwrap();
        let session = auth.sign_in(&code, now).await.unwrap().unwrap();
        assert_eq!(auth.sign_in(&code, now).await.unwrap(), None);
        assert!(auth.session(&session) && !auth.session("token") && !auth.token(&session));
        let late = auth.code(now).unwrap();
        assert_eq!(auth.sign_in(&late, now + CODE_LIFETIME).await.unwrap(), None);
        // The session survives a restart of the server, until the browser signs out.
        let next = load(&home, "token").await;
        assert!(next.session(&session) && next.token("token"));
        next.sign_out(&session).await.unwrap();
        assert!(!next.session(&session) && !load(&home, "token").await.session(&session));
    }

    #[tokio::test]
    async fn a_replaced_token_file_revokes_the_old_token_and_signs_browsers_out() {
        let (home, now) = (tempfile::tempdir().unwrap(), Instant::now());
        let old = load(&home, "old").await;
        assert!(old.token("old"));
        let session = old.sign_in(&old.code(now).unwrap(), now).await.unwrap().unwrap();
        let auth = load(&home, "new").await;
        assert!(auth.token("new") && !auth.token("old") && !auth.session(&session));
        let next = load(&home, "new").await;
        assert!(!next.token("old") && !next.session(&session));
    }

    #[tokio::test]
    async fn a_token_is_accepted_in_both_of_its_forms() {
        let home = tempfile::tempdir().unwrap();
        let digits = "0123456789abcdef0123456789abcdef01234567";
        let (stead, e2b) = (format!("stead_{digits}"), format!("e2b_{digits}"));
        let auth = load(&home, &stead).await;
        assert!(auth.token(&stead) && auth.token(&e2b) && !auth.token(digits));
        assert!(!auth.token(&e2b.replace('7', "8")));
        // The next server accepts both, whichever form the file has.
        let next = load(&home, &e2b).await;
        assert!(next.token(&stead) && next.token(&e2b));
        assert_eq!(next.store.live_tokens(Timestamp::now()).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_token_of_an_earlier_version_is_accepted_as_it_is_and_in_the_form_clients_accept() {
        let home = tempfile::tempdir().unwrap();
        let earlier = "c29tZSBlYXJsaWVyIHRva2VuIG9mIHRoaXMgaG9tZSE";
        for _ in 0..2 {
            let auth = load(&home, earlier).await;
            let e2b = AccessToken::read(earlier).with_prefix(TokenPrefix::E2b);
            assert!(auth.token(earlier) && auth.token(&e2b));
            assert!(!auth.token(&format!("e2b_{earlier}")));
            assert_eq!(auth.store.live_tokens(Timestamp::now()).await.unwrap().len(), 1);
        }
    }

    #[tokio::test]
    async fn wrong_secrets_are_rate_limited_for_a_while() {
        let (auth, now) = (load(&tempfile::tempdir().unwrap(), "token").await, Instant::now());
        let refused = (0..60).filter(|_| auth.failed(now)).count();
        assert_eq!(refused, 10);
        assert!(!auth.failed(now + Duration::from_secs(10)));
    }

    #[tokio::test]
    async fn codes_and_sessions_are_bounded() {
        let (auth, now) = (load(&tempfile::tempdir().unwrap(), "token").await, Instant::now());
        let first = auth.code(now).unwrap();
        for _ in 0..MAX_CODES {
            auth.code(now).unwrap();
        }
        assert_eq!(auth.sign_in(&first, now).await.unwrap(), None);
        let mut sessions = Vec::new();
        for _ in 0..=MAX_SESSIONS {
            let code = auth.code(now).unwrap();
            sessions.push(auth.sign_in(&code, now).await.unwrap().unwrap());
        }
        assert!(!auth.session(&sessions[0]) && auth.session(&sessions[1]));
        assert!(auth.token("token"));
    }
}
