//! Share links: read-only access to one terminal, for a limited time.
//!
//! A guest is the holder of the secret of a share. The guard allows a guest what [`Pass::permits`] lists and
//! nothing else, and handlers that stream end when the share expires or is revoked.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::FromRequestParts,
    http::{Method, request::Parts},
};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use super::auth::{AuthError, Digest, secret};
use base::clock::Clock;
use model::{Moment, ShareId};
use store::{Share, Store, StoreError};

/// Active shares at a time.
const MAX_SHARES: usize = 1000;
/// How often a stream checks the clock, because timers do not run while the machine is suspended.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// The routes of its terminal that a guest may GET.
const GUEST_ROUTES: [&str; 5] = ["stream", "ws", "snapshot", "recording", "share"];

/// A share and the digest of its secret.
pub struct Pass {
    share: Share,
    digest: Digest,
    revoked: CancellationToken,
    clock: Clock,
}

impl Pass {
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// Whether the guest may make this request. Everything else is refused.
    pub fn permits(&self, method: &Method, path: &str) -> bool {
        let mut parts = path.split('/');
        let root = [parts.next(), parts.next(), parts.next()]
            == [Some(""), Some("api"), Some("terminals")];
        let terminal = parts.next() == Some(self.share.terminal_id.as_str());
        let what = parts.next().is_some_and(|what| GUEST_ROUTES.contains(&what));
        *method == Method::GET && root && terminal && what && parts.next().is_none()
    }

    fn is_active(&self, now: &Moment) -> bool {
        !self.revoked.is_cancelled() && !self.share.left(now).is_zero()
    }

    /// Waits until the share expires or is revoked.
    pub async fn ended(&self) {
        loop {
            let left = self.share.left(&self.clock.now());
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = self.revoked.cancelled() => return,
                () = tokio::time::sleep(left.min(POLL_INTERVAL)) => {}
            }
        }
    }
}

/// Extractor: the pass of the caller, if it is a guest.
pub struct Guest(pub Option<Arc<Pass>>);

impl Guest {
    /// Waits until the share of a guest ends; never returns for other callers.
    pub async fn ended(self) {
        match self.0 {
            Some(pass) => pass.ended().await,
            None => std::future::pending().await,
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Guest {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Guest, Infallible> {
        Ok(Guest(parts.extensions.get::<Arc<Pass>>().cloned()))
    }
}

/// All active shares.
pub struct Shares {
    store: Store,
    clock: Clock,
    known: RwLock<Vec<Arc<Pass>>>,
}

/// Why a share could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    #[error("there are already {MAX_SHARES} active share links; revoke some")]
    Full,
    #[error(transparent)]
    Auth(#[from] AuthError),
}

impl Shares {
    /// Loads the active shares from the store.
    pub async fn load(store: Store, clock: Clock) -> Result<Shares, StoreError> {
        let rows = store.live_shares(clock.now()).await?;
        let known = rows.into_iter().map(|(share, hash)| pass(share, Digest::stored(hash), &clock));
        Ok(Shares { known: RwLock::new(known.collect()), store, clock })
    }

    /// Returns the active share with this secret.
    pub fn pass(&self, given: &str) -> Option<Arc<Pass>> {
        let (given, now) = (Digest::of(given), self.clock.now());
        let known = self.known.read();
        // No early return: the duration must not depend on which share matches.
        let found = known.iter().fold(None, |found, one| {
            if one.digest.is(&given) & one.is_active(&now) { Some(one) } else { found }
        });
        found.cloned()
    }

    /// Creates a share, or gives an existing one a new secret. Returns the secret, which is not stored.
    pub async fn add(&self, share: &Share) -> Result<String, ShareError> {
        let now = self.clock.now();
        if self.known.read().len() >= MAX_SHARES {
            self.forget(|one| !one.is_active(&now));
        }
        if self.known.read().len() >= MAX_SHARES {
            return Err(ShareError::Full);
        }
        let secret = secret().map_err(AuthError::from)?;
        let digest = Digest::of(&secret);
        self.store.put_share(share, digest.bytes()).await.map_err(AuthError::from)?;
        self.forget(|one| one.share.share_id == share.share_id);
        let pass = pass(share.clone(), digest, &self.clock);
        self.known.write().push(pass);
        Ok(secret)
    }

    /// Revokes a share and disconnects its viewers.
    pub async fn revoke(&self, id: &ShareId) -> Result<(), StoreError> {
        self.store.revoke_share(id, self.clock.wall()).await?;
        self.forget(|one| one.share.share_id == *id);
        Ok(())
    }

    fn forget(&self, which: impl Fn(&Pass) -> bool) {
        let mut known = self.known.write();
        known.extract_if(.., |one| which(one)).for_each(|one| one.revoked.cancel());
    }
}

fn pass(share: Share, digest: Digest, clock: &Clock) -> Arc<Pass> {
    let (revoked, clock) = (CancellationToken::new(), clock.clone());
    Arc::new(Pass { share, digest, revoked, clock })
}

#[cfg(test)]
mod tests {
    use model::Timestamp;
    use parking_lot::Mutex;

    use super::*;

    /// A clock that shows a time of the wall clock, and seconds since the machine booted.
    fn clock(shown: &Arc<Mutex<(Timestamp, u64, u64)>>) -> Clock {
        let shown = shown.clone();
        Clock::from_fn(move || {
            let (wall, boot, seconds) = *shown.lock();
            Moment::new(wall, boot, Duration::from_secs(seconds))
        })
    }

    fn first_use(thread: &str) -> store::FirstUse {
        store::FirstUse {
            thread_id: thread.parse().unwrap(),
            choices: store::ThreadChoices::default(),
            provider: "local".into(),
            policy: model::SessionPolicy::default(),
            shell: model::ShellKind::default(),
            size: (80, 24),
            now: Moment::wall(Timestamp::now()),
        }
    }

    #[tokio::test]
    async fn a_share_expires_after_its_lifetime_whatever_the_wall_clock_shows() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let chain = store.open_chain(first_use("t")).await.unwrap();
        let start = Timestamp::from_second(1_700_000_000).unwrap();
        let hours = |hours: i64| start + jiff::SignedDuration::from_hours(hours);
        let shown = Arc::new(Mutex::new((start, 1, 100)));
        let clock = clock(&shown);
        let shares = Shares::load(store.clone(), clock.clone()).await.unwrap();
        let share = Share {
            share_id: ShareId::fresh(),
            terminal_id: chain.terminal.terminal_id,
            name: String::new(),
            created: clock.now(),
            expires_at: hours(1),
            revoked_at: None,
        };
        let secret = shares.add(&share).await.unwrap();
        let check = async |now: (Timestamp, u64, u64), expected: bool| {
            *shown.lock() = now;
            assert_eq!(shares.pass(&secret).is_some(), expected, "{now:?}");
            let loaded = Shares::load(store.clone(), clock.clone()).await.unwrap();
            assert_eq!(loaded.pass(&secret).is_some(), expected, "{now:?}, after a restart");
        };
        check((hours(48), 1, 160), true).await;
        check((hours(-48), 1, 160), true).await;
        check((hours(-48), 1, 100 + 3600), false).await;
        // After a boot only the wall clock is left.
        check((start, 2, 5), true).await;
        check((hours(2), 2, 5), false).await;
    }

    #[test]
    fn a_guest_has_read_only_access_to_one_terminal() {
        let (terminal, other) = (model::TerminalId::fresh(), model::TerminalId::fresh());
        let share = Share {
            share_id: ShareId::fresh(),
            terminal_id: terminal.clone(),
            name: String::new(),
            created: Moment::wall(Timestamp::now()),
            expires_at: Timestamp::MAX,
            revoked_at: None,
        };
        let pass = pass(share, Digest::of("x"), &Clock::system());
        let check = |method: Method, path: String, expected: bool| {
            assert_eq!(pass.permits(&method, &path), expected, "{method} {path}");
        };
        for what in GUEST_ROUTES {
            check(Method::GET, format!("/api/terminals/{terminal}/{what}"), true);
            check(Method::POST, format!("/api/terminals/{terminal}/{what}"), false);
            check(Method::GET, format!("/api/terminals/{other}/{what}"), false);
            check(Method::GET, format!("/api/terminals/{terminal}/{what}/"), false);
            check(Method::GET, format!("/api/threads/{terminal}/{what}"), false);
            check(Method::GET, format!("//api/terminals/{terminal}/{what}"), false);
        }
        for what in ["", "/", "/input", "/versions", "/commands", "/shares", "/../x/stream"] {
            check(Method::GET, format!("/api/terminals/{terminal}{what}"), false);
        }
        check(Method::GET, "/api/threads".into(), false);
    }
}
