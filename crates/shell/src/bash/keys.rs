//! The keys that are bound in bash: those that source the drive file, and those that redraw the prompt.

use crate::drive::put;
use crate::paths::Paths;
use crate::quote::single;

/// The builtins that the bound keys run, in the order they are tried: a command may have redefined any of
/// them. A backslash prevents alias expansion.
pub(super) const SOURCES: [&str; 4] = ["\\.", "\\builtin .", "\\command .", "\\source"];

/// The number of keys that are bound to the drive file.
pub const KEYS: usize = SOURCES.len();

/// The number of a further key, whose binding does not redirect standard error.
pub(super) const PLAIN_KEY: usize = KEYS;

/// Returns the bytes to type for a key.
pub fn key(which: usize) -> Vec<u8> {
    format!("\x1b[5477;{}~", which + 1).into_bytes()
}

/// The key that saves the half-typed line and accepts the empty line, so that the prompt is redrawn.
pub const REDRAW: &[u8] = b"\x1b[5477;8~";

/// The key that restores the half-typed line.
pub const UNSTASH: &[u8] = b"\x1b[5477;9~";

/// The name of the record that the half-typed line is saved.
pub const STASHED: &str = "p";

/// Binds the keys in every keymap.
pub(super) fn bind(text: &mut Vec<u8>, paths: &Paths) {
    let drive = single(&paths.drive());
    let mut keys = Vec::new();
    for (which, source) in SOURCES.iter().enumerate() {
        // The group hides what `set -x` and an error in the drive file would print.
        let mut binding = format!("\"\\e[5477;{}~\": {{ {source} ", which + 1).into_bytes();
        put(&mut binding, &[&drive, b"; } 2>/dev/null"]);
        keys.push((&b"-x "[..], binding));
    }
    let plain = format!("\"\\e[5477;{}~\": {} ", PLAIN_KEY + 1, SOURCES[0]);
    keys.push((b"-x ", [plain.as_bytes(), &drive].concat()));
    let mut stash =
        b"\"\\e[5477;6~\": \\builtin printf '%s\\n' $READLINE_POINT \"$READLINE_LINE\" >|".to_vec();
    put(&mut stash, &[&single(&paths.at("stash")), b" && READLINE_LINE= READLINE_POINT=0; >|"]);
    put(&mut stash, &[&single(&paths.ctl(STASHED))]);
    keys.push((b"-x ", stash));
    keys.push((b"", b"\"\\e[5477;7~\": accept-line".to_vec()));
    keys.push((b"", b"\"\\e[5477;8~\": \"\\e[5477;6~\\e[5477;7~\"".to_vec()));
    let unstash = format!("\"\\e[5477;9~\": {} ", SOURCES[0]);
    keys.push((b"-x ", [unstash.as_bytes(), &single(&paths.at("unstash"))].concat()));
    for keymap in [&b"emacs"[..], b"vi-insert", b"vi-command"] {
        for (flag, key) in &keys {
            put(text, &[b"builtin bind -m ", keymap, b" ", flag, &single(key), b"\n"]);
        }
    }
}

/// Returns the script that restores the half-typed line, or `None` if it was empty.
pub fn unstash(stashed: &[u8]) -> Option<Vec<u8>> {
    let newline = stashed.iter().position(|byte| *byte == b'\n')?;
    let point: u32 = std::str::from_utf8(&stashed[..newline]).ok()?.parse().ok()?;
    let line = stashed[newline + 1..].strip_suffix(b"\n")?;
    let mut script = b"READLINE_LINE=".to_vec();
    put(&mut script, &[&single(line), b"$READLINE_LINE READLINE_POINT="]);
    put(&mut script, &[point.to_string().as_bytes(), b"\n"]);
    (!line.is_empty()).then_some(script)
}
