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
use model::{ShareId, Timestamp};
use store::{Share, Store, StoreError};

/// Active shares at a time.
const MAX_SHARES: usize = 1000;
/// How often a stream checks the wall clock, which may be set.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// The routes of its terminal that a guest may GET.
const GUEST_ROUTES: [&str; 5] = ["stream", "ws", "snapshot", "recording", "share"];

/// A share and the digest of its secret.
pub struct Pass {
    share: Share,
    digest: Digest,
    revoked: CancellationToken,
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

    fn is_active(&self, now: Timestamp) -> bool {
        !self.revoked.is_cancelled() && now < self.share.expires_at
    }

    /// Waits until the share expires or is revoked.
    pub async fn ended(&self) {
        while self.is_active(Timestamp::now()) {
            let left = self.share.expires_at.duration_since(Timestamp::now());
            let left = Duration::try_from(left).unwrap_or_default();
            tokio::select! {
                () = self.revoked.cancelled() => {}
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
    pub async fn load(store: Store) -> Result<Shares, StoreError> {
        let rows = store.live_shares(Timestamp::now()).await?;
        let known = rows.into_iter().map(|(share, hash)| pass(share, Digest::stored(hash)));
        Ok(Shares { known: RwLock::new(known.collect()), store })
    }

    /// Returns the active share with this secret.
    pub fn pass(&self, given: &str) -> Option<Arc<Pass>> {
        let (given, now) = (Digest::of(given), Timestamp::now());
        let known = self.known.read();
        // No early return: the duration must not depend on which share matches.
        let found = known.iter().fold(None, |found, one| {
            if one.digest.is(&given) & one.is_active(now) { Some(one) } else { found }
        });
        found.cloned()
    }

    /// Creates a share, or gives an existing one a new secret. Returns the secret, which is not stored.
    pub async fn add(&self, share: &Share) -> Result<String, ShareError> {
        let now = Timestamp::now();
        if self.known.read().len() >= MAX_SHARES {
            self.forget(|one| !one.is_active(now));
        }
        if self.known.read().len() >= MAX_SHARES {
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

    /// Revokes a share and disconnects its viewers.
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
    fn a_guest_has_read_only_access_to_one_terminal() {
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
