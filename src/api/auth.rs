//! Who is asking: bearer tokens, one-time sign-in codes, and the browser sessions they buy.
//!
//! A secret is 32 random bytes. Only its blake3 hash is kept, and compared in constant time. Codes
//! live in memory for a quarter of an hour and buy one session; there is never a token in a URL.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use subtle::ConstantTimeEq;

/// How long a sign-in link works.
pub const CODE_TIME: Duration = Duration::from_secs(15 * 60);
/// How long a browser stays signed in.
pub const SESSION_TIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// Codes that wait to be used; the oldest goes first.
const CODES: usize = 64;
/// Browser sessions at once; the oldest goes first.
const SESSIONS: usize = 1024;
/// Wrong secrets answered with 401 before they are answered with 429.
const FAILURES: f64 = 50.0;
/// How fast they are forgiven.
const FORGIVEN_PER_SECOND: f64 = 5.0;

/// A secret's hash, which is all we keep of it.
#[derive(Clone, Copy)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of a secret.
    pub fn of(secret: &str) -> Digest {
        Digest(*blake3::hash(secret.as_bytes()).as_bytes())
    }

    fn is(&self, other: &Digest) -> bool {
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

/// A secret that works until some time.
struct Lasting {
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
    token: Digest,
    codes: Mutex<VecDeque<Lasting>>,
    sessions: Mutex<VecDeque<Lasting>>,
    failures: Mutex<Failures>,
}

impl Auth {
    /// A door that `token` opens.
    pub fn new(token: &str) -> Auth {
        Auth {
            open: false,
            token: Digest::of(token),
            codes: Mutex::default(),
            sessions: Mutex::default(),
            failures: Mutex::new(Failures { count: 0.0, at: Instant::now() }),
        }
    }

    /// A door that is open to anyone who can reach it.
    pub fn open(token: &str) -> Auth {
        Auth { open: true, ..Auth::new(token) }
    }

    /// Whether a request needs no secret at all.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Whether this is the token.
    pub fn token(&self, given: &str) -> bool {
        self.token.is(&Digest::of(given))
    }

    /// Whether this is the cookie of a signed-in browser.
    pub fn session(&self, given: &str, now: Instant) -> bool {
        let given = Digest::of(given);
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        // No early return: how long it takes must not tell which one it was.
        sessions.iter().fold(false, |found, one| found | (one.until > now && one.digest.is(&given)))
    }

    /// A code that signs one browser in, once.
    pub fn code(&self, now: Instant) -> Result<String, getrandom::Error> {
        let code = secret()?;
        keep(&self.codes, &code, now, CODE_TIME, CODES);
        Ok(code)
    }

    /// Exchanges a code for a session; each code works once.
    pub fn sign_in(&self, code: &str, now: Instant) -> Result<Option<String>, getrandom::Error> {
        let given = Digest::of(code);
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = codes.iter().position(|one| one.digest.is(&given)) else {
            return Ok(None);
        };
        let Some(taken) = codes.remove(at).filter(|one| one.until > now) else {
            return Ok(None);
        };
        drop((codes, taken));
        let session = secret()?;
        keep(&self.sessions, &session, now, SESSION_TIME, SESSIONS);
        Ok(Some(session))
    }

    /// Ends a browser session.
    pub fn sign_out(&self, session: &str) {
        let given = Digest::of(session);
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|one| !one.digest.is(&given));
    }

    /// Counts a wrong secret; whether there were too many of them lately. A right one is never
    /// refused for it: nobody can lock the owner out.
    pub fn failed(&self, now: Instant) -> bool {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
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

fn keep(list: &Mutex<VecDeque<Lasting>>, secret: &str, now: Instant, time: Duration, bound: usize) {
    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
    list.retain(|one| one.until > now);
    while list.len() >= bound {
        list.pop_front();
    }
    list.push_back(Lasting { digest: Digest::of(secret), until: now + time });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_signs_in_once_and_not_for_ever() {
        let (auth, now) = (Auth::new("token"), Instant::now());
        assert!(auth.token("token") && !auth.token("tokem") && !auth.token(""));
        let code = auth.code(now).unwrap();
        let session = auth.sign_in(&code, now).unwrap().unwrap();
        assert_eq!(auth.sign_in(&code, now).unwrap(), None);
        assert!(auth.session(&session, now));
        assert!(!auth.session(&session, now + SESSION_TIME));
        assert!(!auth.session("token", now));
        let late = auth.code(now).unwrap();
        assert_eq!(auth.sign_in(&late, now + CODE_TIME).unwrap(), None);
        auth.sign_out(&session);
        assert!(!auth.session(&session, now));
    }

    #[test]
    fn guesses_are_slowed_down_and_forgiven() {
        let (auth, now) = (Auth::new("token"), Instant::now());
        let refused = (0..60).filter(|_| auth.failed(now)).count();
        assert_eq!(refused, 10);
        assert!(!auth.failed(now + Duration::from_secs(10)));
    }

    #[test]
    fn codes_and_sessions_are_bounded() {
        let (auth, now) = (Auth::new("token"), Instant::now());
        let first = auth.code(now).unwrap();
        for _ in 0..CODES {
            auth.code(now).unwrap();
        }
        assert_eq!(auth.sign_in(&first, now).unwrap(), None);
        assert_eq!(auth.codes.lock().unwrap().len(), CODES);
    }
}
