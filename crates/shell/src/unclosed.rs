//! Recognizes texts that may end inside a substitution.

/// A construct that has been opened but not closed.
#[derive(PartialEq)]
enum Open {
    Paren,
    Quote,
    /// A parameter expansion, opened by `${`.
    Brace,
}

/// Returns whether a parenthesis may be unclosed at the end of this text. Returns `false` only if quotes,
/// braces and parentheses are balanced. Returns `true` for every construct in which they may not count,
/// such as a here-document, a pattern of `case` or a backquote: the caller then has bash parse the text.
pub fn may_be(text: &[u8]) -> bool {
    if !text.windows(2).any(|two| matches!(two, [b'$' | b'<' | b'>' | b'=', b'('])) {
        return false;
    }
    let mut open = Vec::new();
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let (quoted, in_brace) =
            (open.last() == Some(&Open::Quote), open.last() == Some(&Open::Brace));
        let before = at.checked_sub(1).map_or(b' ', |before| text[before]);
        match byte {
            b'\\' => at += 1,
            b'`' => return true,
            // Bash reads a subscript up to its bracket, even over text that would be a comment elsewhere.
            b'[' if !quoted && !in_brace && (before.is_ascii_alphanumeric() || before == b'_') => {
                return true;
            }
            b'\'' if in_brace => return true,
            b'#' if in_brace && before != b'{' => return true,
            b'(' if in_brace && before != b'$' => return true,
            b'\'' if !quoted && before == b'$' => return true,
            b'\'' if !quoted => match text[at + 1..].iter().position(|byte| *byte == b'\'') {
                Some(length) => at += length + 1,
                None => return true,
            },
            b'#' if !quoted && matches!(before, b'(' | b')' | b'|' | b'&' | b'<' | b'>') => {
                return true;
            }
            b'#' if !quoted && (before.is_ascii_whitespace() || before == b';') => {
                at += text[at..].iter().take_while(|byte| **byte != b'\n').count();
            }
            b'<' if !quoted && text[at..].starts_with(b"<<<") => at += 2,
            b'<' if !quoted && text[at..].starts_with(b"<<") => return true,
            b'c' if !quoted && is_case(before, &text[at..]) => return true,
            b'"' if quoted => drop(open.pop()),
            b'"' => open.push(Open::Quote),
            b'{' if before == b'$' => open.push(Open::Brace),
            b'}' if in_brace => drop(open.pop()),
            b'(' if !quoted || before == b'$' => open.push(Open::Paren),
            b')' if open.last() == Some(&Open::Paren) => drop(open.pop()),
            _ => {}
        }
        at += 1;
    }
    !open.is_empty()
}

/// Returns whether `text` begins with the keyword `case`.
fn is_case(before: u8, text: &[u8]) -> bool {
    let ends = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\\';
    !before.is_ascii_alphanumeric()
        && text.strip_prefix(b"case").is_some_and(|rest| rest.first().is_none_or(ends))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unclosed_texts_are_found() {
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
            "a[[ #$((",
            "$(<<E\na) ",
            "echo $(case a in a) echo;; esac",
            "echo $(# )",
            "echo $(echo ${x%)}",
            "echo $(echo $'\\')'",
            "echo $(echo `)`",
        ] {
            assert!(may_be(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn closed_texts_are_accepted() {
        for text in [
            "true",
            "echo '$(' ",
            "echo $(ls)",
            "echo \"$(echo \"a b\")\" $((1 + 2))",
            "echo $(echo ')') # (",
            "a=(1 '(' 2); f() { echo ${a[0]}; }",
            "echo \\$\\(ls",
            "echo \"(\" $(ls)",
            "cat <<<\"$(ls)\"",
            "echo \"${x:-$(ls)}\" ${#y}",
        ] {
            assert!(!may_be(text.as_bytes()), "{text}");
        }
    }
}
