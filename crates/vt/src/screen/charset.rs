//! The character sets G0 to G3.

/// The four designated sets, the invoked one, and the one in use. The last two can differ: DECRC
/// restores the set in use, not the invocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Charsets {
    /// The final byte of each set; `B` is ASCII.
    pub sets: [u8; 4],
    pub level: u8,
    pub current: u8,
}

impl Default for Charsets {
    fn default() -> Self {
        Charsets { sets: [b'B'; 4], level: 0, current: b'B' }
    }
}

impl Charsets {
    pub fn invoke(&mut self, level: u8) {
        self.level = level;
        self.current = self.sets[usize::from(level)];
    }

    pub fn designate(&mut self, level: u8, set: u8) {
        self.sets[usize::from(level)] = set;
        if self.level == level {
            self.current = set;
        }
    }
}

impl Charsets {
    pub fn map(&self, code: u32) -> u32 {
        if code < 127 { map(self.current, code) } else { code }
    }
}

/// Writes the sequences that change one state into another.
pub(crate) fn charset_changes(from: &Charsets, to: &Charsets, out: &mut Vec<u8>) {
    if from == to {
        return;
    }
    const SLOTS: [u8; 4] = *b"()*+";
    let designate = |out: &mut Vec<u8>, level: u8, set: u8| {
        out.extend_from_slice(&[0x1b, SLOTS[usize::from(level)], set]);
    };
    for level in 0..4 {
        let (had, want) = (from.sets[usize::from(level)], to.sets[usize::from(level)]);
        if had != want {
            designate(out, level, want);
        }
    }
    match to.level {
        0 => {}
        1 => out.push(0x0e),
        2 => out.extend_from_slice(b"\x1bn"),
        _ => out.extend_from_slice(b"\x1bo"),
    }
}

/// Whether `set` names a character set.
pub(crate) fn is_known(set: u8) -> bool {
    set == b'B' || replacements(set).is_some()
}

/// Maps `code` to its character in `set`.
pub(crate) fn map(set: u8, code: u32) -> u32 {
    let Some(pairs) = replacements(set) else { return code };
    if set == b'0' {
        return match code {
            0x60..=0x7e => GRAPHICS[code as usize - 0x60] as u32,
            _ => code,
        };
    }
    pairs
        .chars()
        .zip(pairs.chars().skip(1))
        .step_by(2)
        .find(|(from, _)| *from as u32 == code)
        .map_or(code, |(_, to)| to as u32)
}

const GRAPHICS: [char; 31] = [
    '◆', '▒', '␉', '␌', '␍', '␊', '°', '±', '␤', '␋', '┘', '┐', '┌', '└', '┼', '⎺', '⎻', '─', '⎼',
    '⎽', '├', '┤', '┴', '┬', '│', '≤', '≥', 'π', '≠', '£', '·',
];

/// Pairs of an ASCII character and its replacement.
fn replacements(set: u8) -> Option<&'static str> {
    Some(match set {
        b'0' => "",
        b'A' => "#£",
        b'4' => "#£@¾[i\\½]|{¨|f}¼~´",
        b'C' | b'5' => "[Ä\\Ö]Å^Ü`é{ä|ö}å~ü",
        b'R' => "#£@à[°\\ç]§{é|ù}è~¨",
        b'Q' => "@à[â\\ç]ê^î`ô{é|ù}è~û",
        b'K' => "@§[Ä\\Ö]Ü{ä|ö}ü~ß",
        b'Y' => "#£@§[°\\ç]é`ù{à|ò}è~ì",
        b'E' | b'6' => "@Ä[Æ\\Ø]Å^Ü`ä{æ|ø}å~ü",
        b'Z' => "#£@§[¡\\Ñ]¿{°|ñ}ç",
        b'H' | b'7' => "@É[Ä\\Ö]Å^Ü`é{ä|ö}å~ü",
        b'=' => "#ù@à[é\\ç]ê^î_è`ô{ä|ö}ü~û",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_replace_only_the_listed_characters() {
        for (set, code, expected) in [
            (b'0', 'q', '─'),
            (b'0', '~', '·'),
            (b'0', '_', '_'),
            (b'A', '#', '£'),
            (b'K', '~', 'ß'),
            (b'B', '#', '#'),
            (b'=', '_', 'è'),
        ] {
            assert_eq!(map(set, code as u32), expected as u32, "{} {code}", set as char);
        }
    }
}
