//! Pieces of bash text that drive files, dumps and rc files share.

use crate::drive::put;
use crate::state::State;

/// Appended to a command, so that `errexit` and the ERR trap ignore its failure. `((1))` succeeds even if
/// every builtin is redefined.
pub const OR_ELSE: &[u8] = b" || ((1))\n";

/// Restores `OLDPWD`, even if it was exported without a value.
pub fn old_directory(text: &mut Vec<u8>, state: &State) {
    put(text, &[b"\\builtin unset -v OLDPWD", OR_ELSE]);
    if !state.get("oldpwd").is_empty() {
        put(text, &[b"\\builtin ", state.get("oldpwd"), b"\n"]);
    }
}

/// Returns the position of the first occurrence of `wanted`.
pub fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}
