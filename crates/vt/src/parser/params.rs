//! The parameters of a control sequence, in fixed-size arrays.

const MAX_PARAMS: usize = 32;
/// The value of an omitted sub-parameter.
pub(crate) const MISSING: i32 = -1;

/// Up to 32 parameters and 32 sub-parameters; further ones are ignored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Params {
    values: [i32; MAX_PARAMS],
    subs: [i32; MAX_PARAMS],
    /// Start and end of each parameter's sub-parameters. Valid once there is a sub-parameter.
    spans: [(u8, u8); MAX_PARAMS],
    len: u8,
    subs_len: u8,
    refuse_digits: bool,
    refuse_sub_digits: bool,
    in_sub: bool,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            values: [0; MAX_PARAMS],
            subs: [0; MAX_PARAMS],
            spans: [(0, 0); MAX_PARAMS],
            len: 1,
            subs_len: 0,
            refuse_digits: false,
            refuse_sub_digits: false,
            in_sub: false,
        }
    }
}

impl Params {
    /// Resets to a single parameter of value 0.
    #[inline]
    pub fn reset(&mut self) {
        self.values[0] = 0;
        self.len = 1;
        self.subs_len = 0;
        self.refuse_digits = false;
        self.refuse_sub_digits = false;
        self.in_sub = false;
    }

    /// Reads plain numbers and semicolons from the front of `bytes` until a parameter does not fit.
    /// Returns the number of bytes read.
    #[inline]
    pub fn numbers(&mut self, bytes: &[u8]) -> usize {
        let (mut len, mut at) = (usize::from(self.len), 0);
        while let Some(ahead) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
            let (value, digits) = short_number(*ahead);
            if digits > 3 {
                break;
            }
            self.values[len - 1] = value as i32;
            at += digits;
            if ahead[digits] != b';' || len >= MAX_PARAMS {
                self.len = len as u8;
                return at;
            }
            len += 1;
            at += 1;
        }
        self.len = len as u8;
        self.values[len - 1] = 0;
        at + self.long_numbers(&bytes[at..])
    }

    /// [`Params::numbers`] for long numbers and for the last bytes of the input.
    fn long_numbers(&mut self, bytes: &[u8]) -> usize {
        let mut len = usize::from(self.len);
        let (mut value, mut taken) = (0u32, bytes.len());
        for (at, &byte) in bytes.iter().enumerate() {
            let digit = byte.wrapping_sub(b'0');
            if digit < 10 {
                if value >= 10_000_000 {
                    // Longer numbers are left to `byte`, which saturates.
                    taken = at;
                    break;
                }
                value = value * 10 + u32::from(digit);
            } else if byte == b';' && len < MAX_PARAMS {
                self.values[len - 1] = value as i32;
                len += 1;
                value = 0;
            } else {
                taken = at;
                break;
            }
        }
        self.values[len - 1] = value as i32;
        self.len = len as u8;
        taken
    }

    #[inline]
    pub fn byte(&mut self, byte: u8) {
        match byte {
            b';' => self.next(),
            b':' => self.next_sub(),
            digit => self.digit(i32::from(digit & 15)),
        }
    }

    #[inline]
    fn next(&mut self) {
        self.in_sub = false;
        if usize::from(self.len) >= MAX_PARAMS {
            self.refuse_digits = true;
            return;
        }
        if self.subs_len > 0 {
            self.spans[usize::from(self.len)] = (self.subs_len, self.subs_len);
        }
        self.values[usize::from(self.len)] = 0;
        self.len += 1;
    }

    fn next_sub(&mut self) {
        self.in_sub = true;
        if self.refuse_digits || usize::from(self.subs_len) >= MAX_PARAMS {
            self.refuse_sub_digits = true;
            return;
        }
        if self.subs_len == 0 {
            self.spans[..usize::from(self.len)].fill((0, 0));
        }
        self.subs[usize::from(self.subs_len)] = MISSING;
        self.subs_len += 1;
        self.spans[usize::from(self.len) - 1].1 += 1;
    }

    #[inline]
    fn digit(&mut self, digit: i32) {
        if self.refuse_digits || (self.in_sub && (self.refuse_sub_digits || self.subs_len == 0)) {
            return;
        }
        let value = if self.in_sub {
            &mut self.subs[usize::from(self.subs_len) - 1]
        } else {
            &mut self.values[usize::from(self.len) - 1]
        };
        *value =
            if *value == MISSING { digit } else { value.saturating_mul(10).saturating_add(digit) };
    }

    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    #[inline]
    pub fn has_subs(&self) -> bool {
        self.subs_len > 0 || self.in_sub
    }

    /// Returns parameter `i`, or 0 if it is missing.
    #[inline]
    pub fn get(&self, i: usize) -> i32 {
        if i < self.len() { self.values[i] } else { 0 }
    }

    /// Returns parameter `i` as a count: 0 means 1.
    #[inline]
    pub fn count(&self, i: usize) -> usize {
        self.get(i).max(1) as usize
    }

    #[inline]
    pub fn subs(&self, i: usize) -> &[i32] {
        if self.subs_len == 0 || i >= self.len() {
            return &[];
        }
        let (from, to) = self.spans[i];
        &self.subs[usize::from(from)..usize::from(to)]
    }

    /// Writes the bytes that bring fresh parameters to this state.
    pub fn write(&self, out: &mut Vec<u8>) {
        for i in 0..self.len() {
            if i > 0 {
                out.push(b';');
            }
            out.extend_from_slice(self.values[i].to_string().as_bytes());
            for sub in self.subs(i) {
                out.push(b':');
                if *sub != MISSING {
                    out.extend_from_slice(sub.to_string().as_bytes());
                }
            }
        }
        if self.refuse_digits {
            out.push(b';');
        }
        if self.refuse_sub_digits || (self.in_sub && self.refuse_digits) {
            out.push(b':');
        }
    }
}

/// Parses the number at the start of four bytes without a branch. Returns it with its digits; a
/// number of four digits may continue.
#[inline]
fn short_number(bytes: [u8; 4]) -> (u32, usize) {
    const HIGH: u32 = 0x8080_8080;
    let digits = u32::from_le_bytes(bytes) ^ 0x3030_3030;
    // Sets the high bit of each byte that is not a digit.
    let others = (((digits & !HIGH) + 0x7676_7676) | digits) & HIGH;
    let count = (others.trailing_zeros() / 8) as usize;
    // Moves the last digit to the highest byte, then adds up pairs, and pairs of pairs.
    let digits = (u64::from(digits) << (32 - 8 * count)) as u32;
    let pairs = (digits * 10).wrapping_add(digits >> 8) & 0x00ff_00ff;
    let value = (pairs * 100 + (pairs >> 16)) & 0xffff;
    (value, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_numbers_are_parsed_completely() {
        for value in 0..1000u32 {
            for end in [b";;;;", b"mmmm", b":0:0", b"\xff\xff\xff\xff", b"\x1b[31"] {
                let mut bytes = value.to_string().into_bytes();
                let count = bytes.len();
                bytes.extend_from_slice(end);
                let ahead = [bytes[0], bytes[1], bytes[2], bytes[3]];
                assert_eq!(short_number(ahead), (value, count), "{bytes:?}");
            }
        }
        assert_eq!(short_number(*b"m123"), (0, 0));
        assert_eq!(short_number(*b"1234").1, 4);
        assert_eq!(short_number(*b"/9:9").1, 0);
    }

    #[test]
    fn the_fast_path_parses_like_byte_by_byte() {
        for text in [
            "",
            "m",
            ";",
            ";;m",
            "1;2",
            "38;5;123m",
            "1;48;5;255m",
            "007;0m",
            "1234;5m",
            "99999999999;1m",
            "4:3;1m",
        ] {
            let (mut fast, mut slow) = (Params::default(), Params::default());
            let taken = fast.numbers(text.as_bytes());
            for byte in text.as_bytes() {
                if !matches!(byte, 0x30..=0x3b) {
                    break;
                }
                slow.byte(*byte);
            }
            for byte in &text.as_bytes()[taken..] {
                if !matches!(byte, 0x30..=0x3b) {
                    break;
                }
                fast.byte(*byte);
            }
            let values =
                |params: &Params| (0..params.len()).map(|i| params.get(i)).collect::<Vec<_>>();
            assert_eq!(values(&fast), values(&slow), "{text:?}");
        }
        let many = "1;".repeat(40);
        let mut fast = Params::default();
        assert_eq!(fast.numbers(many.as_bytes()), 2 * MAX_PARAMS - 1);
        assert_eq!(fast.len(), MAX_PARAMS);
    }
}
