//! A checkpoint file: the screen at an offset.
//!
//! Replaced atomically. A damaged file is ignored, and the screen is rebuilt from the log alone.

use std::fs;
use std::io;
use std::path::Path;

use vt::Screen;

use base::durable::replace;

const MAGIC: &[u8; 8] = b"steadck1";

pub struct Checkpoint {
    /// The screen includes the output before this offset.
    pub offset: u64,
    pub screen: Screen,
}

pub fn encode(offset: u64, screen: &Screen) -> Vec<u8> {
    let picture = screen.checkpoint();
    let mut file = Vec::with_capacity(MAGIC.len() + 8 + picture.len());
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&offset.to_le_bytes());
    file.extend_from_slice(&blake3::hash(&file[8..16]).as_bytes()[..8]);
    file.extend_from_slice(&picture);
    file
}

/// Parses a checkpoint file; `None` if it is damaged.
pub fn decode(file: &[u8]) -> Option<Checkpoint> {
    let rest = file.strip_prefix(MAGIC.as_slice())?;
    let (offset, rest) = rest.split_first_chunk::<8>()?;
    let (check, picture) = rest.split_first_chunk::<8>()?;
    if blake3::hash(offset).as_bytes()[..8] != check[..] {
        return None;
    }
    let screen = Screen::restore(picture).ok()?;
    Some(Checkpoint { offset: u64::from_le_bytes(*offset), screen })
}

/// Reads the checkpoint in the terminal's directory; `None` if it is missing or damaged.
pub fn load(directory: &Path) -> Option<Checkpoint> {
    decode(&fs::read(directory.join("checkpoint")).ok()?)
}

/// Replaces the checkpoint in the terminal's directory.
pub fn save(directory: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(&directory.join("checkpoint"), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vt::Size;

    #[test]
    fn a_checkpoint_comes_back_and_a_damaged_one_does_not() {
        let mut screen = Screen::new(Size { cols: 40, rows: 5 }, 100);
        screen.feed(b"\x1b[31mhello\r\n");
        let bytes = encode(12, &screen);
        let back = decode(&bytes).unwrap();
        assert_eq!((back.offset, back.screen.snapshot()), (12, screen.snapshot()));
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 0x40;
            assert!(decode(&damaged).is_none(), "byte {index} changed unnoticed");
        }
    }
}
