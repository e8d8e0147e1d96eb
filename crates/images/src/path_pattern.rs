//! Patterns of paths in Dockerfiles and `.dockerignore`: `*` and `?` within a name, `[a-z]` for one character, `\` before
//! a character that means itself, and `**` for any number of directories.

/// Whether a path matches a pattern, name by name. Both are relative.
#[must_use]
pub fn path_matches(pattern: &str, path: &str) -> bool {
    let names = |text: &str| -> Vec<Vec<char>> {
        let names = text.split('/').filter(|name| !matches!(*name, "" | "."));
        names.map(|name| name.chars().collect()).collect()
    };
    matches_names(&names(pattern), &names(path))
}

fn matches_names(pattern: &[Vec<char>], path: &[Vec<char>]) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return path.is_empty() };
    if first.as_slice() == ['*', '*'] {
        return (0..=path.len()).any(|skipped| matches_names(rest, &path[skipped..]));
    }
    match path.split_first() {
        Some((name, below)) => matches_name(first, name) && matches_names(rest, below),
        None => false,
    }
}

/// Matches one name. After a mismatch, only the last `*` is tried with one more character, so that the time is bounded
/// by the product of both lengths.
fn matches_name(pattern: &[char], name: &[char]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut last_star = None;
    while read < name.len() {
        match pattern.get(at) {
            Some('*') => {
                last_star = Some((at, read));
                at += 1;
                continue;
            }
            Some(_) => {
                if let Some(length) = matches_character(&pattern[at..], name[read]) {
                    at += length;
                    read += 1;
                    continue;
                }
            }
            None => {}
        }
        let Some((star, from)) = last_star else { return false };
        last_star = Some((star, from + 1));
        (at, read) = (star + 1, from + 1);
    }
    pattern[at..].iter().all(|letter| *letter == '*')
}

/// The length of the beginning of a pattern that stands for one character, if it is this one.
fn matches_character(pattern: &[char], letter: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['\\', escaped, ..] => (*escaped == letter).then_some(2),
        ['[', rest @ ..] => {
            let Some(end) = rest.iter().skip(1).position(|it| *it == ']').map(|end| end + 1) else {
                return (letter == '[').then_some(1);
            };
            let (is_negated, mut class) = match &rest[..end] {
                ['^' | '!', class @ ..] if !class.is_empty() => (true, class),
                class => (false, class),
            };
            let mut is_in = false;
            while let Some((first, after)) = class.split_first() {
                (is_in, class) = match after {
                    ['-', last, after @ ..] => (is_in || (*first..=*last).contains(&letter), after),
                    after => (is_in || *first == letter, after),
                };
            }
            (is_in != is_negated).then_some(end + 2)
        }
        [first, ..] => (*first == letter).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        let check = |pattern: &str, path: &str, expected: bool| {
            assert_eq!(path_matches(pattern, path), expected, "{pattern} {path}");
        };
        check("*.txt", "a.txt", true);
        check("*.txt", "b/a.txt", false);
        check("**/*.txt", "a.txt", true);
        check("**/*.txt", "b/c/a.txt", true);
        check("b/**", "b/c/a.txt", true);
        check("b", "b/c", false);
        check("a?c", "abc", true);
        check("a[b-d]e", "ace", true);
        check("a[!b-d]e", "ace", false);
        check("a[", "a[", true);
        check(r"a\*", "a*", true);
        check(r"a\*", "ab", false);
        check("*a*b*", "xxaxxbxx", true);
        check("*a*b", "xxaxxbxx", false);
        check("./b//c/", "b/c", true);
        check("", "", true);
        check("*a*a*a*a*a*a*a*a*b", &"a".repeat(200), false);
    }
}
