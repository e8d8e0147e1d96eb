//! Keystrokes and sizes that clients send to a terminal, over HTTP and WebSocket alike.

use axum::body::Bytes;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::error::Problem;

/// Input to type: either `data` or `data_base64`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"data": "ls\r"}))]
pub(super) struct TypedInput {
    /// Input as text.
    pub(super) data: Option<String>,
    /// Input as base64.
    pub(super) data_base64: Option<String>,
    /// Makes repeated requests safe: input with the same id is typed once.
    #[serde(default)]
    pub(super) write_id: Option<String>,
}

impl TypedInput {
    /// Decodes the input from text or base64.
    pub(super) fn bytes(&self) -> Result<Bytes, Problem> {
        match (&self.data, &self.data_base64) {
            (Some(text), None) => Ok(Bytes::from(text.clone())),
            (None, Some(text)) => BASE64_STANDARD
                .decode(text)
                .map(Bytes::from)
                .map_err(|error| Problem::body("/data_base64", error.to_string())),
            (None, None) => Err(Problem::body("/data", "data or data_base64 is required")),
            (Some(_), Some(_)) => {
                Err(Problem::body("/data_base64", "data and data_base64 exclude each other"))
            }
        }
    }

    /// Returns the checked write id; empty if there is none.
    pub(super) fn write_id(&self) -> Result<&str, Problem> {
        let id = self.write_id.as_deref().unwrap_or_default();
        if id.len() > 200 {
            return Err(Problem::body("/write_id", "must have at most 200 bytes"));
        }
        Ok(id)
    }
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"cols": 120, "rows": 40}))]
pub(super) struct TerminalSize {
    /// Columns, 1 to 1000.
    pub(super) cols: u16,
    /// Rows, 1 to 1000.
    pub(super) rows: u16,
}

/// Most columns or rows of a terminal. Bounds the memory that a client can claim.
const MAX_SIDE_CELLS: u16 = 1000;

impl TerminalSize {
    /// Returns columns and rows if both are in range.
    pub(super) fn check(self) -> Result<(u16, u16), Problem> {
        for (pointer, side) in [("/cols", self.cols), ("/rows", self.rows)] {
            if side == 0 || side > MAX_SIDE_CELLS {
                return Err(Problem::body(pointer, format!("must be 1 to {MAX_SIDE_CELLS}")));
            }
        }
        Ok((self.cols, self.rows))
    }
}
