//! Raw mode of the user's terminal while attached.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Resets the modes that a program may have set: mouse, paste and focus reports, key protocols, the alternate
/// screen, hidden cursor, colours, scroll region.
const RESET: &[u8] =
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?1015l\
\x1b[?2004l\x1b[?2026l\x1b[?1l\x1b>\x1b[<u\x1b[>4;0m\x1b[r\x1b[?1049l\x1b[?6l\x1b[?7h\x1b[?25h\
\x1b[0 q\x1b[m\x0f";

/// Raw mode until dropped. Does nothing if standard input is not a terminal.
pub(super) struct RawMode {
    before: Option<Termios>,
}

/// Whether the user's terminal is in raw mode, where only its owner may draw.
static IS_RAW: AtomicBool = AtomicBool::new(false);

/// Returns whether the user's terminal is in raw mode.
pub(super) fn is_raw() -> bool {
    IS_RAW.load(Ordering::Relaxed)
}

impl RawMode {
    pub(super) fn enter() -> io::Result<RawMode> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(RawMode { before: None });
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        IS_RAW.store(true, Ordering::Relaxed);
        Ok(RawMode { before: Some(before) })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            let mut out = io::stdout().lock();
            // An error means that the terminal was closed.
            let _ = out.write_all(RESET).and_then(|()| out.flush());
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &before);
            IS_RAW.store(false, Ordering::Relaxed);
        }
    }
}

/// A terminal without echo until dropped. Does nothing if standard input is not a terminal.
pub(super) struct EchoOff {
    before: Option<Termios>,
}

impl EchoOff {
    pub(super) fn enter() -> io::Result<EchoOff> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(EchoOff { before: None });
        }
        let before = tcgetattr(&stdin)?;
        let mut hidden = before.clone();
        hidden.local_modes &= !LocalModes::ECHO;
        // Drops what was typed before the question.
        tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
        Ok(EchoOff { before: Some(before) })
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
        }
    }
}

/// Returns the columns and rows of the user's terminal.
pub(super) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}
