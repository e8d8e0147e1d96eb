//! Splitting a byte stream into frames, and two frequent frames that are encoded without an owned
//! message.

use super::error::{Malformed, TooLarge};
use super::field::{Field, put_bytes};
use super::limits::MAX_FRAME;
use super::numbers::Stream;

/// The type numbers of the frames that [`put_output`] and [`put_command_output`] write.
const OUTPUT: u8 = 131;
const COMMAND_OUTPUT: u8 = 137;

/// One received frame, with its payload still in the decoder's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The type number.
    pub kind: u8,
    /// The bytes after the type.
    pub payload: &'a [u8],
}

impl Frame<'_> {
    /// Returns the `seq` of a request of any type, known or not: its first four bytes.
    #[must_use]
    pub fn seq(&self) -> Option<u32> {
        self.payload.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }
}

/// Collects bytes as they arrive and returns whole frames. Buffers at most one frame and the bytes that
/// were fed last.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    taken: usize,
}

impl Decoder {
    /// Appends bytes that were read from the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next whole frame, or `None` until more bytes are fed.
    ///
    /// # Errors
    /// [`Malformed`] for a length of zero or beyond [`MAX_FRAME`]: the frame boundaries are lost and the
    /// stream must be closed.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Malformed> {
        let rest = &self.buffer[self.taken..];
        let Some(length) = rest.first_chunk() else {
            return Ok(self.starve());
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 {
            return Err(Malformed("a frame without a type"));
        }
        if length > MAX_FRAME {
            return Err(Malformed("a frame beyond the maximum length"));
        }
        if rest.len() < 4 + length {
            return Ok(self.starve());
        }
        let start = self.taken + 4;
        self.taken = start + length;
        let body = &self.buffer[start..self.taken];
        Ok(Some(Frame { kind: body[0], payload: &body[1..] }))
    }

    /// Returns how many bytes of an incomplete frame are buffered.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.taken
    }

    /// Frees an empty buffer that a large frame has grown.
    fn starve(&mut self) -> Option<Frame<'_>> {
        if self.taken == self.buffer.len() {
            self.taken = 0;
            self.buffer.clear();
            if self.buffer.capacity() > 128 << 10 {
                self.buffer = Vec::new();
            }
        }
        None
    }
}

/// Writes one frame around the bytes that `fill` appends. On [`TooLarge`], `out` is unchanged.
pub(super) fn frame(
    out: &mut Vec<u8>,
    kind: u8,
    fill: impl FnOnce(&mut Vec<u8>),
) -> Result<(), TooLarge> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(kind);
    fill(out);
    let length = out.len() - start - 4;
    if length > MAX_FRAME {
        out.truncate(start);
        return Err(TooLarge(length));
    }
    out[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(())
}

/// Appends an [`Event::Output`](super::Event::Output) frame straight from a read buffer.
///
/// # Errors
/// [`TooLarge`] as [`Event::encode`](super::Event::encode).
pub fn put_output(
    out: &mut Vec<u8>,
    terminal: &str,
    offset: u64,
    time_ms: u64,
    bytes: &[u8],
) -> Result<(), TooLarge> {
    frame(out, OUTPUT, |out| {
        put_bytes(out, terminal.as_bytes());
        offset.put(out);
        time_ms.put(out);
        put_bytes(out, bytes);
    })
}

/// Appends an [`Event::CommandOutput`](super::Event::CommandOutput) frame straight from a read buffer.
///
/// # Errors
/// [`TooLarge`] as [`Event::encode`](super::Event::encode).
pub fn put_command_output(
    out: &mut Vec<u8>,
    command: &str,
    stream: Stream,
    offset: u64,
    bytes: &[u8],
) -> Result<(), TooLarge> {
    frame(out, COMMAND_OUTPUT, |out| {
        put_bytes(out, command.as_bytes());
        stream.put(out);
        offset.put(out);
        put_bytes(out, bytes);
    })
}
