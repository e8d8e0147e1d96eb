//! What a person sends to a terminal: keystrokes and its size, over HTTP and WebSocket alike.

use axum::body::Bytes;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::error::Problem;

/// What to type. One of `data` and `data_base64`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TypedInput {
    /// Text.
    pub(super) data: Option<String>,
    /// Bytes.
    pub(super) data_base64: Option<String>,
    /// Applied once however often it is sent.
    #[serde(default)]
    pub(super) write_id: Option<String>,
}

impl TypedInput {
    /// The bytes, whichever way they were sent.
    pub(super) fn bytes(&self) -> Result<Bytes, Problem> {
        match (&self.data, &self.data_base64) {
            (Some(text), None) => Ok(Bytes::from(text.clone())),
            (None, Some(text)) => BASE64_STANDARD
                .decode(text)
                .map(Bytes::from)
                .map_err(|error| Problem::body("/data_base64", error.to_string())),
            (None, None) => Err(Problem::body("/data", "one of data and data_base64 is needed")),
            (Some(_), Some(_)) => {
                Err(Problem::body("/data_base64", "only one of data and data_base64 may be given"))
            }
        }
    }

    /// The write id, checked; empty for none.
    pub(super) fn write_id(&self) -> Result<&str, Problem> {
        let id = self.write_id.as_deref().unwrap_or_default();
        if id.len() > 200 {
            return Err(Problem::body("/write_id", "may have 200 bytes"));
        }
        Ok(id)
    }
}

/// A size.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TerminalSize {
    /// Columns, 1 to 1000.
    pub(super) cols: u16,
    /// Rows, 1 to 1000.
    pub(super) rows: u16,
}

/// The largest screen; a grid of this size is the most one client can make us hold.
const MAX_SIDE: u16 = 1000;

impl TerminalSize {
    /// The size, if it is one.
    pub(super) fn check(self) -> Result<(u16, u16), Problem> {
        for (pointer, side) in [("/cols", self.cols), ("/rows", self.rows)] {
            if side == 0 || side > MAX_SIDE {
                return Err(Problem::body(pointer, format!("must be 1 to {MAX_SIDE}")));
            }
        }
        Ok((self.cols, self.rows))
    }
}
