//! Character widths in columns: a two-level lookup table that is built at compile time from the
//! generated ranges.

mod table;

use table::RANGES;

const PAGES: usize = 0x11_0000 / 256;

/// For each page of 256 code points: the width (0 to 2) if all share it, otherwise 3 plus the row
/// in `MIXED`.
static PAGE: [u16; PAGES] = build_pages();
static MIXED: [[u8; 64]; count_mixed()] = build_mixed();

/// Returns the number of columns of `c`: 0, 1 or 2.
#[inline]
pub(crate) fn width(c: u32) -> u8 {
    if c < 0x300 {
        return if c < 0x20 || (0x7f..0xa0).contains(&c) { 0 } else { 1 };
    }
    let page = PAGE[((c >> 8) as usize).min(PAGES - 1)];
    if page < 3 {
        return page as u8;
    }
    let byte = MIXED[page as usize - 3][(c as usize & 255) >> 2];
    (byte >> ((c & 3) * 2)) & 3
}

/// Returns the number of columns that a text takes on a screen.
#[must_use]
pub fn text_width(text: &str) -> usize {
    text.chars().map(|c| usize::from(width(c as u32))).sum()
}

const fn overlaps(range: (u32, u32, u8), page: u32) -> bool {
    range.0 <= page * 256 + 255 && range.1 >= page * 256
}

const fn covers(range: (u32, u32, u8), page: u32) -> bool {
    range.0 <= page * 256 && range.1 >= page * 256 + 255
}

const fn count_mixed() -> usize {
    let (mut count, mut last, mut i) = (0, u32::MAX, 0);
    while i < RANGES.len() {
        let mut page = RANGES[i].0 >> 8;
        while page <= RANGES[i].1 >> 8 {
            if overlaps(RANGES[i], page) && !covers(RANGES[i], page) && page != last {
                count += 1;
                last = page;
            }
            page += 1;
        }
        i += 1;
    }
    count
}

const fn build_pages() -> [u16; PAGES] {
    let mut pages = [1u16; PAGES];
    let (mut count, mut i) = (0, 0);
    while i < RANGES.len() {
        let mut page = RANGES[i].0 >> 8;
        while page <= RANGES[i].1 >> 8 {
            if covers(RANGES[i], page) {
                pages[page as usize] = RANGES[i].2 as u16;
            } else if pages[page as usize] < 3 {
                pages[page as usize] = 3 + count;
                count += 1;
            }
            page += 1;
        }
        i += 1;
    }
    pages
}

const fn build_mixed() -> [[u8; 64]; count_mixed()] {
    let pages = build_pages();
    // 0x55 is the width 1, four times.
    let mut mixed = [[0x55u8; 64]; count_mixed()];
    let mut i = 0;
    while i < RANGES.len() {
        let (first, last, width) = RANGES[i];
        let mut page = first >> 8;
        while page <= last >> 8 {
            if pages[page as usize] >= 3 {
                let row = pages[page as usize] as usize - 3;
                let mut c = if first > page * 256 { first } else { page * 256 };
                while c <= last && c < page * 256 + 256 {
                    let (at, shift) = ((c as usize & 255) >> 2, (c & 3) * 2);
                    mixed[row][at] = (mixed[row][at] & !(3 << shift)) | (width << shift);
                    c += 1;
                }
            }
            page += 1;
        }
        i += 1;
    }
    mixed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lookup_matches_the_table() {
        for c in 0xa0..0x11_0000u32 {
            let listed = RANGES.iter().find(|r| r.0 <= c && c <= r.1).map_or(1, |r| r.2);
            assert_eq!(width(c), listed, "U+{c:04X}");
        }
    }

    #[test]
    fn the_width_of_a_text_is_in_columns() {
        assert_eq!((text_width("ab"), text_width("中e\u{301}"), text_width("")), (2, 3, 0));
    }

    #[test]
    fn well_known_characters() {
        for (c, expected) in [
            ('a', 1),
            ('é', 1),
            ('中', 2),
            ('ｆ', 2),
            ('\u{301}', 0),
            ('😀', 2),
            ('🛜', 2),
            ('\u{200d}', 0),
        ] {
            assert_eq!(width(c as u32), expected, "{c}");
        }
    }
}
