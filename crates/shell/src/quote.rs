//! Shell quoting in both directions: encodes bytes as a word that every shell reads as those bytes, and
//! decodes the words that `declare -p`, `alias -p`, `trap -p` and `printf %q` print.

/// Returns `bytes` as one word in single quotes. NUL cannot be part of a word and is omitted.
#[must_use]
pub fn single(bytes: &[u8]) -> Vec<u8> {
    let mut word = Vec::with_capacity(bytes.len() + 2);
    word.push(b'\'');
    for &byte in bytes {
        match byte {
            b'\'' => word.extend_from_slice(b"'\\''"),
            0 => {}
            other => word.push(other),
        }
    }
    word.push(b'\'');
    word
}

/// Returns whether `name` can be a variable in every shell.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    match name.split_first() {
        Some((first, rest)) => {
            (first.is_ascii_alphabetic() || *first == b'_')
                && rest.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        }
        None => false,
    }
}

/// Returns the end of the logical line that begins at `start`: after the first newline outside quotes, or
/// the end of `text`.
#[must_use]
pub fn line_end(text: &[u8], start: usize) -> usize {
    let mut at = start;
    while at < text.len() {
        match text[at] {
            b'\n' => return at + 1,
            b'\\' => at += 2,
            b'\'' => at = skip_single(text, at + 1),
            b'"' => at = skip_double(text, at + 1),
            b'$' if text.get(at + 1) == Some(&b'\'') => at = skip_ansi(text, at + 2),
            _ => at += 1,
        }
    }
    text.len()
}

/// Returns the logical lines of `text`, each with its line end.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        at = line_end(text, start);
        (start < text.len()).then(|| &text[start..at])
    })
}

/// Returns the position after the byte, the quoted text or the substitution at `at`.
#[must_use]
pub fn skip(text: &[u8], at: usize) -> usize {
    match text[at] {
        b'\\' => (at + 2).min(text.len()),
        b'\'' => skip_single(text, at + 1),
        b'"' => skip_double(text, at + 1),
        b'`' => skip_to(text, at + 1, b'`'),
        b'$' => match text.get(at + 1) {
            Some(b'\'') => skip_ansi(text, at + 2),
            Some(b'(') => skip_to(text, at + 2, b')'),
            Some(b'{') => skip_to(text, at + 2, b'}'),
            _ => at + 1,
        },
        _ => at + 1,
    }
}

/// Returns the position after the byte that closes the construct opened before `at`. Counts the depth
/// instead of recursing, because the text is untrusted.
fn skip_to(text: &[u8], mut at: usize, close: u8) -> usize {
    let open = match close {
        b')' => b'(',
        b'}' => b'{',
        other => other,
    };
    let mut depth = 1;
    while at < text.len() {
        at = match text[at] {
            byte if byte == close => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
                at + 1
            }
            byte if byte == open => {
                depth += 1;
                at + 1
            }
            b'\\' => at + 2,
            b'\'' => skip_single(text, at + 1),
            b'"' => skip_double(text, at + 1),
            _ => at + 1,
        };
    }
    text.len()
}

fn skip_single(text: &[u8], from: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    rest.iter().position(|byte| *byte == b'\'').map_or(text.len(), |found| from + found + 1)
}

fn skip_double(text: &[u8], mut at: usize) -> usize {
    while at < text.len() {
        match text[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

fn skip_ansi(text: &[u8], mut at: usize) -> usize {
    while at < text.len() {
        match text[at] {
            b'\'' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// Reads the word at the start of `text`: its value, and how many bytes it took. A word ends at an
/// unquoted blank, newline, or parenthesis.
#[must_use]
pub fn word(text: &[u8]) -> (Vec<u8>, usize) {
    let mut value = Vec::new();
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b' ' | b'\t' | b'\n' | b'(' | b')' => break,
            b'\\' => {
                value.extend(text.get(at + 1));
                at += 2;
            }
            b'\'' => {
                let end = skip_single(text, at + 1);
                value.extend_from_slice(inner(text, at + 1, end));
                at = end;
            }
            b'"' => {
                let end = skip_double(text, at + 1);
                double(inner(text, at + 1, end), &mut value);
                at = end;
            }
            b'$' if text.get(at + 1) == Some(&b'\'') => {
                let end = skip_ansi(text, at + 2);
                ansi(inner(text, at + 2, end), &mut value);
                at = end;
            }
            other => {
                value.push(other);
                at += 1;
            }
        }
    }
    (value, at.min(text.len()))
}

/// Returns all words of a line.
#[must_use]
pub fn words(line: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < line.len() {
        if matches!(line[at], b' ' | b'\t' | b'\n' | b'(' | b')') {
            at += 1;
            continue;
        }
        let (value, taken) = word(&line[at..]);
        found.push(value);
        at += taken;
    }
    found
}

/// Returns the text between an opening quote and the closing quote that ends before `end`.
fn inner(text: &[u8], from: usize, end: usize) -> &[u8] {
    text.get(from..end.saturating_sub(1).max(from)).unwrap_or_default()
}

fn double(text: &[u8], value: &mut Vec<u8>) {
    let mut at = 0;
    while at < text.len() {
        if text[at] == b'\\' {
            match text.get(at + 1) {
                Some(b'\n') => {}
                Some(byte @ (b'$' | b'`' | b'"' | b'\\')) => value.push(*byte),
                Some(byte) => value.extend_from_slice(&[b'\\', *byte]),
                None => value.push(b'\\'),
            }
            at += 2;
        } else {
            value.push(text[at]);
            at += 1;
        }
    }
}

fn ansi(text: &[u8], value: &mut Vec<u8>) {
    let mut at = 0;
    while at < text.len() {
        if text[at] != b'\\' {
            value.push(text[at]);
            at += 1;
            continue;
        }
        let Some(&kind) = text.get(at + 1) else {
            value.push(b'\\');
            break;
        };
        at += 2;
        match kind {
            b'n' => value.push(b'\n'),
            b't' => value.push(b'\t'),
            b'r' => value.push(b'\r'),
            b'a' => value.push(7),
            b'b' => value.push(8),
            b'f' => value.push(12),
            b'v' => value.push(11),
            b'e' | b'E' => value.push(27),
            b'0'..=b'7' => {
                at -= 1;
                let (number, taken) = digits(&text[at..], 8, 3);
                value.push(number.to_le_bytes()[0]);
                at += taken;
            }
            b'x' => {
                let (number, taken) = digits(&text[at..], 16, 2);
                value.push(number.to_le_bytes()[0]);
                at += taken;
            }
            b'u' | b'U' => {
                let (number, taken) = digits(&text[at..], 16, if kind == b'u' { 4 } else { 8 });
                if let Some(found) = char::from_u32(number) {
                    value.extend_from_slice(found.encode_utf8(&mut [0; 4]).as_bytes());
                }
                at += taken;
            }
            b'c' => {
                if let Some(byte) = text.get(at) {
                    value.push(byte & 0x1f);
                }
                at += 1;
            }
            b'C' if text.get(at) == Some(&b'-') => {
                if let Some(byte) = text.get(at + 1) {
                    value.push(byte & 0x1f);
                }
                at += 2;
            }
            other => value.push(other),
        }
    }
}

fn digits(text: &[u8], radix: u32, max_digits: usize) -> (u32, usize) {
    let mut number = 0u32;
    let mut taken = 0;
    for byte in text.iter().take(max_digits) {
        let Some(digit) = char::from(*byte).to_digit(radix) else {
            break;
        };
        number = number.wrapping_mul(radix).wrapping_add(digit);
        taken += 1;
    }
    (number, taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, value: &[u8]) {
        assert_eq!(word(text.as_bytes()), (value.to_vec(), text.len()));
    }

    #[test]
    fn words_are_decoded_as_shells_print_them() {
        check("plain", b"plain");
        check(r"b\ c", b"b c");
        check(r"'it'\''s'", b"it's");
        check(r#""a \$b \"q\" \\ \x""#, br#"a $b "q" \ \x"#);
        check(r"$'a\nb\t\'q\'\001\x41\u00e9\E'", "a\nb\t'q'\u{1}Aé\u{1b}".as_bytes());
        check("''", b"");
        check(r"$'\377'", &[0xff]);
    }

    #[test]
    fn a_line_ends_outside_quotes_only() {
        let text = b"declare -- a=\"x\ny\"\ntrap -- 'a\nb' INT\nrest";
        let first = line_end(text, 0);
        assert_eq!(&text[..first], b"declare -- a=\"x\ny\"\n");
        let second = line_end(text, first);
        assert_eq!(&text[first..second], b"trap -- 'a\nb' INT\n");
        assert_eq!(line_end(text, second), text.len());
    }

    proptest! {
        #[test]
        fn a_quoted_word_is_decoded_to_the_same_bytes(bytes in proptest::collection::vec(1u8.., 0..64)) {
            let quoted = single(&bytes);
            prop_assert_eq!(word(&quoted), (bytes, quoted.len()));
        }

        #[test]
        fn no_text_makes_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let (_, taken) = word(&bytes);
            prop_assert!(taken <= bytes.len());
            prop_assert!(line_end(&bytes, 0) <= bytes.len());
            let _ = words(&bytes);
        }
    }
}
