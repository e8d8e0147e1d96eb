//! Runs of printable ASCII, eight bytes at a time.

/// Returns how many leading bytes are printable ASCII.
#[inline]
pub(crate) fn printable(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let count = printable_of_eight(chunk);
        at += count;
        if count < 8 {
            return at;
        }
    }
    at + bytes[at..].iter().take_while(|b| (0x20..=0x7e).contains(*b)).count()
}

/// [`printable`] for exactly eight bytes, without a branch.
#[inline]
pub(crate) fn printable_of_eight(bytes: &[u8; 8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let word = u64::from_le_bytes(*bytes);
    // Sets the high bit of each byte that is below 0x20, above 0x7e or not ASCII.
    let low = (word | HIGH).wrapping_sub(ONES * 0x20) ^ HIGH;
    let high = (word & !HIGH) + ONES;
    let other = (low | high | word) & HIGH;
    (other.trailing_zeros() / 8) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_classified_alike_at_every_position() {
        for byte in 0..=255u8 {
            for at in 0..20 {
                let mut text = vec![b'x'; 24];
                text[at] = byte;
                let expected = if (0x20..=0x7e).contains(&byte) { 24 } else { at };
                assert_eq!(printable(&text), expected, "{byte:#x} at {at}");
            }
        }
    }
}
