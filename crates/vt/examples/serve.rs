//! Serves screens to a test harness in another language.
//!
//! Reads requests from standard input and answers them in order:
//!
//! ```text
//! request = cols:u16 rows:u16 scrollback:u32 cut:u32 length:u32 bytes
//! answer  = length:u32 snapshot          after the first `cut` bytes
//!           length:u32 json              after all bytes
//!           length:u32 replies           to all bytes
//! ```
//! All numbers are little-endian.

use std::io::{self, Read, Write};

use vt::{Screen, Size, screen_json};

fn main() -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut head = [0u8; 16];
    while input.read_exact(&mut head).is_ok() {
        let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let u32_at = |at: usize| {
            u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize
        };
        let size = Size { cols: u16_at(0), rows: u16_at(2) };
        let (scrollback, cut) = (u32_at(4), u32_at(8));
        let mut bytes = vec![0; u32_at(12)];
        input.read_exact(&mut bytes)?;
        let mut screen = Screen::new(size, scrollback);
        let mut replies = screen.feed(&bytes[..cut]).replies;
        let snapshot = screen.snapshot();
        replies.extend(screen.feed(&bytes[cut..]).replies);
        for part in [&snapshot, screen_json(&screen).as_bytes(), &replies] {
            output.write_all(&(part.len() as u32).to_le_bytes())?;
            output.write_all(part)?;
        }
        output.flush()?;
    }
    Ok(())
}
