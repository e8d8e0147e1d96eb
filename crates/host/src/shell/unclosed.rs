//! Recognizes texts that may end inside a substitution.

#[derive(PartialEq)]
enum Open {
    Paren,
    Quote,
}

/// Returns whether a parenthesis may be unclosed at the end of this text. Returns `true` too often (for a
/// pattern of `case`, or a here-document), and `false` only if quotes and parentheses are balanced.
pub fn may_be(text: &[u8]) -> bool {
    if !text.windows(2).any(|two| matches!(two, [b'$' | b'<' | b'>' | b'=', b'('])) {
        return false;
    }
    let mut open = Vec::new();
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let quoted = open.last() == Some(&Open::Quote);
        let before = at.checked_sub(1).map_or(b' ', |before| text[before]);
        match byte {
            b'\\' => at += 1,
            b'\'' if !quoted => match text[at + 1..].iter().position(|byte| *byte == b'\'') {
                Some(length) => at += length + 1,
                None => return true,
            },
            b'#' if !quoted && (before.is_ascii_whitespace() || before == b';') => {
                if text[..at].windows(2).any(|two| two == b"${") {
                    // A comment, or a part of an expansion in which parentheses count.
                    return true;
                }
                at += text[at..].iter().take_while(|byte| **byte != b'\n').count();
            }
            b'"' if quoted => drop(open.pop()),
            b'"' => open.push(Open::Quote),
            b'(' if !quoted || before == b'$' => open.push(Open::Paren),
            b')' if open.last() == Some(&Open::Paren) => drop(open.pop()),
            _ => {}
        }
        at += 1;
    }
    !open.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_closed_is_noticed() {
        for text in [
            "echo $(ls",
            "echo \"$(ls",
            "echo $(echo ')'",
            "echo $(echo \")\"",
            "cat <(echo",
            "a=(1 2",
            "echo $((1+2)",
            "echo $(ls # )",
            "echo $(echo '",
            "echo ${x #$((",
        ] {
            assert!(may_be(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_is_closed_is_left_alone() {
        for text in [
            "true",
            "echo '$(' ",
            "echo $(ls)",
            "echo \"$(echo \"a b\")\" $((1 + 2))",
            "echo $(echo ')') # (",
            "a=(1 '(' 2); f() { echo ${a[0]}; }",
            "echo \\$\\(ls",
            "echo \"(\" $(ls)",
        ] {
            assert!(!may_be(text.as_bytes()), "{text}");
        }
    }
}
