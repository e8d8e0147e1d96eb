//! The parameters of a control sequence, within fixed room.

const ROOM: usize = 32;
/// A sub-parameter that was left out.
pub(crate) const MISSING: i32 = -1;

/// Up to 32 parameters and 32 sub-parameters; what does not fit is ignored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Params {
    values: [i32; ROOM],
    subs: [i32; ROOM],
    /// Where the sub-parameters of each parameter begin and end, once there are any.
    spans: [(u8, u8); ROOM],
    len: u8,
    subs_len: u8,
    refuse_digits: bool,
    refuse_sub_digits: bool,
    in_sub: bool,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            values: [0; ROOM],
            subs: [0; ROOM],
            spans: [(0, 0); ROOM],
            len: 1,
            subs_len: 0,
            refuse_digits: false,
            refuse_sub_digits: false,
            in_sub: false,
        }
    }
}

impl Params {
    /// One parameter, 0.
    #[inline]
    pub fn reset(&mut self) {
        self.values[0] = 0;
        self.len = 1;
        self.subs_len = 0;
        self.refuse_digits = false;
        self.refuse_sub_digits = false;
        self.in_sub = false;
    }

    /// Takes parameters of plain numbers and semicolons from the front of `bytes`, as
    /// long as there is room for them; returns how many bytes that were.
    #[inline]
    pub fn numbers(&mut self, bytes: &[u8]) -> usize {
        let mut len = usize::from(self.len);
        let (mut value, mut taken) = (0u32, bytes.len());
        for (at, &byte) in bytes.iter().enumerate() {
            let digit = byte.wrapping_sub(b'0');
            if digit < 10 {
                if value >= 10_000_000 {
                    // Beyond eight digits it is a matter for `byte`.
                    taken = at;
                    break;
                }
                value = value * 10 + u32::from(digit);
            } else if byte == b';' && len < ROOM {
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
        if usize::from(self.len) >= ROOM {
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
        if self.refuse_digits || usize::from(self.subs_len) >= ROOM {
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

    /// Parameter `i`, 0 when there is none.
    #[inline]
    pub fn get(&self, i: usize) -> i32 {
        if i < self.len() { self.values[i] } else { 0 }
    }

    /// Parameter `i` as a count: 0 means 1.
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

    /// Bytes that bring fresh parameters to this state.
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
