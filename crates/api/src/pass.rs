//! What a share link opens: one terminal, to look at, for a time.
//!
//! A guest is whoever holds the secret of a share. The guard lets a guest ask for what
//! [`Pass::shows`] lists and nothing else, and handlers that stream end when the pass is over.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::FromRequestParts,
    http::{Method, request::Parts},
};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use super::auth::{AuthError, Digest, secret};
use model::{ShareId, Timestamp};
use store::{Share, Store, StoreError};

/// Shares that hold at once.
const MOST: usize = 1000;
/// How often a stream looks at the time: the machine's clock may be set.
const LOOK: Duration = Duration::from_secs(30);
/// What of its terminal a guest may ask for, by GET.
const SHOWN: [&str; 5] = ["stream", "ws", "snapshot", "recording", "share"];

/// A share that somebody may come with.
pub struct Pass {
    share: Share,
    digest: Digest,
    revoked: CancellationToken,
}

impl Pass {
    /// The share.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// Whether its holder may ask for this. Everything not named here is refused.
    pub fn shows(&self, method: &Method, path: &str) -> bool {
        let mut parts = path.split('/');
        let root = [parts.next(), parts.next(), parts.next()]
            == [Some(""), Some("api"), Some("terminals")];
        let terminal = parts.next() == Some(self.share.terminal_id.as_str());
        let what = parts.next().is_some_and(|what| SHOWN.contains(&what));
        *method == Method::GET && root && terminal && what && parts.next().is_none()
    }

    fn holds(&self, now: Timestamp) -> bool {
        !self.revoked.is_cancelled() && now < self.share.expires_at
    }

    /// Waits until it no longer holds.
    pub async fn over(&self) {
        while self.holds(Timestamp::now()) {
            let left = self.share.expires_at.duration_since(Timestamp::now());
            let left = Duration::try_from(left).unwrap_or_default();
            tokio::select! {
                () = self.revoked.cancelled() => {}
                () = tokio::time::sleep(left.min(LOOK)) => {}
            }
        }
    }
}

/// In a handler: the pass of whoever asks, if it is a guest.
pub struct Guest(pub Option<Arc<Pass>>);

impl Guest {
    /// Waits until a guest's pass is over; for ever where nobody is a guest.
    pub async fn over(self) {
        match self.0 {
            Some(pass) => pass.over().await,
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

/// All shares that hold.
pub struct Shares {
    store: Store,
    known: RwLock<Vec<Arc<Pass>>>,
}

/// Why a share could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// There are too many.
    #[error("there are {MOST} links already; take some back")]
    Full,
    /// No secret could be made or kept.
    #[error(transparent)]
    Auth(#[from] AuthError),
}

impl Shares {
    /// Those that the store remembers.
    pub async fn load(store: Store) -> Result<Shares, StoreError> {
        let rows = store.live_shares(Timestamp::now()).await?;
        let known = rows.into_iter().map(|(share, hash)| pass(share, Digest::kept(hash)));
        Ok(Shares { known: RwLock::new(known.collect()), store })
    }

    /// The pass with this secret, while it holds.
    pub fn pass(&self, given: &str) -> Option<Arc<Pass>> {
        let (given, now) = (Digest::of(given), Timestamp::now());
        let known = self.known.read();
        // No early return: how long it takes must not tell which one it was.
        let found = known.iter().fold(None, |found, one| {
            if one.digest.is(&given) & one.holds(now) { Some(one) } else { found }
        });
        found.cloned()
    }

    /// Makes a share; its secret, which is told this once. One that is there gets another secret.
    pub async fn add(&self, share: &Share) -> Result<String, ShareError> {
        let now = Timestamp::now();
        if self.known.read().len() >= MOST {
            self.forget(|one| !one.holds(now));
        }
        if self.known.read().len() >= MOST {
            return Err(ShareError::Full);
        }
        let secret = secret().map_err(AuthError::from)?;
        let digest = Digest::of(&secret);
        self.store.put_share(share, digest.bytes()).await.map_err(AuthError::from)?;
        self.forget(|one| one.share.share_id == share.share_id);
        let pass = pass(share.clone(), digest);
        self.known.write().push(pass);
        Ok(secret)
    }

    /// Takes a share back: who looks by it sees no more.
    pub async fn revoke(&self, id: &ShareId) -> Result<(), StoreError> {
        self.store.revoke_share(id, Timestamp::now()).await?;
        self.forget(|one| one.share.share_id == *id);
        Ok(())
    }

    fn forget(&self, which: impl Fn(&Pass) -> bool) {
        let mut known = self.known.write();
        known.extract_if(.., |one| which(one)).for_each(|one| one.revoked.cancel());
    }
}

fn pass(share: Share, digest: Digest) -> Arc<Pass> {
    Arc::new(Pass { share, digest, revoked: CancellationToken::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_may_look_at_one_terminal_and_do_nothing() {
        let (terminal, other) = (model::TerminalId::fresh(), model::TerminalId::fresh());
        let share = Share {
            share_id: ShareId::fresh(),
            terminal_id: terminal.clone(),
            name: String::new(),
            created_at: Timestamp::now(),
            expires_at: Timestamp::MAX,
            revoked_at: None,
        };
        let pass = pass(share, Digest::of("x"));
        let check = |method: Method, path: String, expected: bool| {
            assert_eq!(pass.shows(&method, &path), expected, "{method} {path}");
        };
        for what in SHOWN {
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
