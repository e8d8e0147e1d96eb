//! Masks the values of environment variables whose names suggest a secret.
//!
//! The store keeps the values, because shells need them. Responses contain [`MASK`] instead, unless the owner
//! asks for the values with `reveal=true`.

use std::collections::BTreeMap;

use engine::terminal::state;
use model::{Env, looks_secret};
use serde::Deserialize;
use utoipa::IntoParams;

const MASK: &str = "***";

/// Whether a response contains the values of secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Secrets {
    Masked,
    Revealed,
}

/// Selects whether secrets are shown.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RevealQuery {
    /// `true` returns the values of variables whose names suggest a secret (`…KEY`, `…TOKEN`, `…PASSWORD`);
    /// by default they are `***`.
    reveal: Option<bool>,
}

impl RevealQuery {
    pub(super) fn secrets(&self) -> Secrets {
        Secrets::new(self.reveal)
    }
}

impl Secrets {
    pub(super) fn new(reveal: Option<bool>) -> Secrets {
        if reveal == Some(true) { Secrets::Revealed } else { Secrets::Masked }
    }

    fn hides(self, name: &str) -> bool {
        self == Secrets::Masked && looks_secret(name)
    }

    pub(super) fn env(self, mut env: Env) -> Env {
        for (name, value) in &mut env {
            if self.hides(name) {
                MASK.clone_into(value);
            }
        }
        env
    }

    /// Masks a difference of environments; a removed variable remains removed.
    pub(super) fn delta(
        self,
        mut delta: BTreeMap<String, Option<String>>,
    ) -> BTreeMap<String, Option<String>> {
        for (name, value) in &mut delta {
            if self.hides(name)
                && let Some(value) = value
            {
                MASK.clone_into(value);
            }
        }
        delta
    }

    /// Masks the assignments in shell source that `declare -p`, `typeset -p` or `set` printed.
    pub(super) fn source(self, source: &[u8]) -> Vec<u8> {
        state::mask_assignments(source, MASK, |name| self.hides(name))
    }
}
