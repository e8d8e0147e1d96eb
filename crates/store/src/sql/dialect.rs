//! Translates the parameters of a statement for PostgreSQL, which knows only `$1`, `$2` and so on.

/// A statement for PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Translated {
    pub(super) sql: String,
    /// The names of the parameters in their order; empty if the parameters have numbers.
    pub(super) names: Vec<String>,
}

/// Translates `?1` and `:name` outside of quotes.
pub(super) fn translate(sql: &str) -> Translated {
    let mut out = String::with_capacity(sql.len() + 16);
    let mut names: Vec<String> = Vec::new();
    let mut rest = sql;
    while let Some(at) = rest.find(['?', ':', '\'', '"']) {
        let (before, found) = rest.split_at(at);
        out.push_str(before);
        let after = &found[1..];
        match found.as_bytes()[0] {
            b'?' => {
                out.push('$');
                rest = after;
            }
            // A cast.
            b':' if after.starts_with(':') => {
                out.push_str("::");
                rest = &after[1..];
            }
            b':' => {
                let is_name =
                    |character: char| character == '_' || character.is_ascii_alphanumeric();
                let end = after.find(|character| !is_name(character)).unwrap_or(after.len());
                let name = &found[..=end];
                let known = names.iter().position(|other| other == name);
                let index = known.unwrap_or_else(|| {
                    names.push(name.to_owned());
                    names.len() - 1
                });
                out.push_str(&format!("${}", index + 1));
                rest = &after[end..];
            }
            quote => {
                let end = after.find(char::from(quote)).map_or(after.len(), |end| end + 1);
                out.push_str(&found[..=end.min(found.len() - 1)]);
                rest = &after[end..];
            }
        }
    }
    out.push_str(rest);
    Translated { sql: out, names }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_numbered_and_quoted_text_stays() {
        let check = |sql: &str, expected: &str, names: &[&str]| {
            let found = translate(sql);
            assert_eq!(
                (found.sql.as_str(), found.names),
                (expected, names.iter().map(|it| (*it).to_owned()).collect())
            );
        };
        check("SELECT 1", "SELECT 1", &[]);
        check("a = ?1 AND b IN (?12, ?2)", "a = $1 AND b IN ($12, $2)", &[]);
        check("a = :a_b AND :c = :a_b", "a = $1 AND $2 = $1", &[":a_b", ":c"]);
        check("x = ':no?' || \"what?:\" || ?1", "x = ':no?' || \"what?:\" || $1", &[]);
        check("ESCAPE '\\' AND ?1 = 'it''s ?'", "ESCAPE '\\' AND $1 = 'it''s ?'", &[]);
        check("x::text = :x", "x::text = $1", &[":x"]);
        check("'open", "'open", &[]);
    }
}
