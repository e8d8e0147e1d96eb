//! Who is asking: bearer tokens, one-time sign-in codes, and the browser sessions they buy.
//!
//! A token is 20 random bytes ([`AccessToken`] has its written forms), any other secret 32. Only the
//! blake3 hash is kept, in the store, and compared in constant time. Codes live in memory for a quarter of an hour and buy one session; there is never a token
//! in a URL.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::{Mutex, RwLock};
use subtle::ConstantTimeEq;

use model::{AccessToken, Timestamp, TokenId, TokenPrefix};
use store::{Store, StoreError, Token};

/// How long a sign-in link works.
pub const CODE_TIME: Duration = Duration::from_secs(15 * 60);
/// How long a browser stays signed in.
pub const SESSION_TIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// Codes that wait to be used; the oldest goes first.
const CODES: usize = 64;
/// Browser sessions at once; the oldest goes first.
const SESSIONS: usize = 256;
/// Wrong secrets answered with 401 before they are answered with 429.
const FAILURES: f64 = 50.0;
/// How fast they are forgiven.
const FORGIVEN_PER_SECOND: f64 = 5.0;
/// What the store calls the right of a token.
const SCOPE_TOKEN: &str = "all";
/// What it calls that of a browser session.
const SCOPE_BROWSER: &str = "browser";

/// A secret's hash, which is all we keep of it.
#[derive(Clone, Copy)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of a secret.
    pub fn of(secret: &str) -> Digest {
        Digest(*blake3::hash(secret.as_bytes()).as_bytes())
    }

    /// One that was kept.
    pub(super) fn kept(hash: [u8; 32]) -> Digest {
        Digest(hash)
    }

    /// What is kept.
    pub(super) fn bytes(self) -> [u8; 32] {
        self.0
    }

    /// Whether it is the same; how long that takes does not tell.
    pub(super) fn is(&self, other: &Digest) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// 256 random bits, fit for a URL, a header or a cookie.
pub fn secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Who a request is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Principal {
    /// Anyone: the server runs with `no_auth`.
    Anyone,
    /// The holder of the token.
    Token,
    /// A signed-in browser.
    Browser,
}

/// Why a secret could not be made or kept.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The machine has none to give.
    #[error("no randomness for a secret")]
    Random(#[from] getrandom::Error),
    /// It could not be written down.
    #[error("cannot keep a secret's hash")]
    Store(#[from] StoreError),
}

/// A secret that opens the door.
struct KnownToken {
    digest: Digest,
    principal: Principal,
    token_id: TokenId,
    until: Option<Timestamp>,
}

/// A code that waits to be used.
struct SignInCode {
    digest: Digest,
    until: Instant,
}

struct Failures {
    count: f64,
    at: Instant,
}

/// All secrets that open the door.
pub struct Auth {
    open: bool,
    store: Store,
    known: RwLock<Vec<KnownToken>>,
    codes: Mutex<VecDeque<SignInCode>>,
    failures: Mutex<Failures>,
}

impl Auth {
    /// A door opened by `token`, by what the store remembers, or, if `open`, by anyone.
    pub async fn load(store: Store, token: &str, open: AuthMode) -> Result<Auth, AuthError> {
        let now = Timestamp::now();
        let token = AccessToken::read(token);
        let digest = Digest::of(&token.canonical());
        let mut known: Vec<KnownToken> = Vec::new();
        for (token, hash) in store.live_tokens(now).await? {
            let principal = match token.scope.as_str() {
                SCOPE_TOKEN => Principal::Token,
                SCOPE_BROWSER => Principal::Browser,
                // A right of a later version: not ours to give.
                _ => continue,
            };
            let (token_id, until) = (token.token_id, token.expires_at);
            known.push(KnownToken { digest: Digest(hash), principal, token_id, until });
        }
        if !known.iter().any(|one| one.principal == Principal::Token && one.digest.is(&digest)) {
            // The file was replaced, or this is the first start: the old one no longer holds.
            for old in known.extract_if(.., |one| one.principal == Principal::Token) {
                store.revoke_token(&old.token_id, now).await?;
            }
            let row = row("home", SCOPE_TOKEN, now, None);
            store.add_token(&row, digest.0).await?;
            let token_id = row.token_id;
            known.push(KnownToken { digest, principal: Principal::Token, token_id, until: None });
        }
        // A token of an earlier version also opens in the form that `stead env` prints.
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
            open: matches!(open, AuthMode::ToAnyone),
            store,
            known: RwLock::new(known),
            codes: Mutex::default(),
            failures: Mutex::new(Failures { count: 0.0, at: Instant::now() }),
        })
    }

    /// Whether a request needs no secret at all.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Whether this is a token, in any of its forms.
    pub fn token(&self, given: &str) -> bool {
        self.holds(&AccessToken::read(given).canonical(), Principal::Token)
    }

    /// Whether this is the cookie of a signed-in browser.
    pub fn session(&self, given: &str) -> bool {
        self.holds(given, Principal::Browser)
    }

    fn holds(&self, given: &str, as_principal: Principal) -> bool {
        let (given, now) = (Digest::of(given), Timestamp::now());
        let known = self.known.read();
        // No early return: how long it takes must not tell which one it was.
        known.iter().fold(false, |found, one| {
            let lives = one.until.is_none_or(|until| until > now);
            found | (lives & (one.principal == as_principal) & one.digest.is(&given))
        })
    }

    /// A code that signs one browser in, once.
    pub fn code(&self, now: Instant) -> Result<String, getrandom::Error> {
        let code = secret()?;
        let mut codes = self.codes.lock();
        codes.retain(|one| one.until > now);
        while codes.len() >= CODES {
            codes.pop_front();
        }
        codes.push_back(SignInCode { digest: Digest::of(&code), until: now + CODE_TIME });
        Ok(code)
    }

    /// Exchanges a code for a session; each code works once.
    pub async fn sign_in(&self, code: &str, now: Instant) -> Result<Option<String>, AuthError> {
        if !self.take(code, now) {
            return Ok(None);
        }
        let (session, at) = (secret()?, Timestamp::now());
        let until = at.checked_add(SESSION_TIME).unwrap_or(Timestamp::MAX);
        let row = row("browser", SCOPE_BROWSER, at, Some(until));
        let digest = Digest::of(&session);
        self.store.add_token(&row, digest.0).await?;
        let oldest = {
            let mut known = self.known.write();
            let (token_id, until) = (row.token_id, Some(until));
            known.push(KnownToken { digest, principal: Principal::Browser, token_id, until });
            let browser = |one: &KnownToken| one.principal == Principal::Browser;
            let many = known.iter().filter(|one| browser(one)).count() > SESSIONS;
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

    /// Counts a wrong secret; whether there were too many of them lately. A right one is never
    /// refused for it: nobody can lock the owner out.
    pub fn failed(&self, now: Instant) -> bool {
        let mut failures = self.failures.lock();
        let forgiven = now.duration_since(failures.at).as_secs_f64() * FORGIVEN_PER_SECOND;
        failures.count = (failures.count - forgiven).max(0.0) + 1.0;
        failures.at = now;
        if failures.count > FAILURES {
            failures.count = FAILURES;
            return true;
        }
        false
    }
}

/// Whether the door stands open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    /// To the holders of a secret.
    ToHolders,
    /// To anyone: `no_auth`.
    ToAnyone,
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

    async fn auth(home: &TempDir, token: &str) -> Auth {
        let store = Store::open(home.path()).unwrap();
        Auth::load(store, token, AuthMode::ToHolders).await.unwrap()
    }

    #[tokio::test]
    async fn a_code_signs_in_once_and_not_for_ever() {
        let (home, now) = (tempfile::tempdir().unwrap(), Instant::now());
        let door = auth(&home, "token").await;
        assert!(door.token("token") && !door.token("tokem") && !door.token(""));
        let code = door.code(now).unwrap();
        let session = door.sign_in(&code, now).await.unwrap().unwrap();
        assert_eq!(door.sign_in(&code, now).await.unwrap(), None);
        assert!(door.session(&session) && !door.session("token") && !door.token(&session));
        let late = door.code(now).unwrap();
        assert_eq!(door.sign_in(&late, now + CODE_TIME).await.unwrap(), None);
        // The next server knows the browser, until it signs out.
        let next = auth(&home, "token").await;
        assert!(next.session(&session) && next.token("token"));
        next.sign_out(&session).await.unwrap();
        assert!(!next.session(&session) && !auth(&home, "token").await.session(&session));
    }

    #[tokio::test]
    async fn another_token_in_the_file_ends_the_old_one() {
        let home = tempfile::tempdir().unwrap();
        assert!(auth(&home, "old").await.token("old"));
        let door = auth(&home, "new").await;
        assert!(door.token("new") && !door.token("old"));
        assert!(!auth(&home, "new").await.token("old"));
    }

    #[tokio::test]
    async fn a_token_opens_in_both_of_its_forms() {
        let home = tempfile::tempdir().unwrap();
        let digits = "0123456789abcdef0123456789abcdef01234567";
        let (stead, e2b) = (format!("stead_{digits}"), format!("e2b_{digits}"));
        let door = auth(&home, &stead).await;
        assert!(door.token(&stead) && door.token(&e2b) && !door.token(digits));
        assert!(!door.token(&e2b.replace('7', "8")));
        // Which form the file has makes no difference to the next server.
        let next = auth(&home, &e2b).await;
        assert!(next.token(&stead) && next.token(&e2b));
        assert_eq!(next.store.live_tokens(Timestamp::now()).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_token_of_an_earlier_version_opens_as_it_is_and_in_the_form_clients_accept() {
        let home = tempfile::tempdir().unwrap();
        let earlier = "c29tZSBlYXJsaWVyIHRva2VuIG9mIHRoaXMgaG9tZSE";
        for _ in 0..2 {
            let door = auth(&home, earlier).await;
            let e2b = AccessToken::read(earlier).with_prefix(TokenPrefix::E2b);
            assert!(door.token(earlier) && door.token(&e2b));
            assert!(!door.token(&format!("e2b_{earlier}")));
            assert_eq!(door.store.live_tokens(Timestamp::now()).await.unwrap().len(), 1);
        }
    }

    #[tokio::test]
    async fn guesses_are_slowed_down_and_forgiven() {
        let (door, now) = (auth(&tempfile::tempdir().unwrap(), "token").await, Instant::now());
        let refused = (0..60).filter(|_| door.failed(now)).count();
        assert_eq!(refused, 10);
        assert!(!door.failed(now + Duration::from_secs(10)));
    }

    #[tokio::test]
    async fn codes_and_sessions_are_bounded() {
        let (door, now) = (auth(&tempfile::tempdir().unwrap(), "token").await, Instant::now());
        let first = door.code(now).unwrap();
        for _ in 0..CODES {
            door.code(now).unwrap();
        }
        assert_eq!(door.sign_in(&first, now).await.unwrap(), None);
        let mut sessions = Vec::new();
        for _ in 0..=SESSIONS {
            let code = door.code(now).unwrap();
            sessions.push(door.sign_in(&code, now).await.unwrap().unwrap());
        }
        assert!(!door.session(&sessions[0]) && door.session(&sessions[1]));
        assert!(door.token("token"));
    }
}
