//! `.dockerignore`: which files of a directory are not sent to a build. Pure.

use machine::path_matches;

/// The rules of a file, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct IgnoreRules(Vec<IgnoreRule>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct IgnoreRule {
    pattern: String,
    /// Whether the files that match are sent although an earlier rule excludes them.
    is_exception: bool,
}

impl IgnoreRules {
    pub(super) fn parse(text: &str) -> IgnoreRules {
        let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
        let rules = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
            let (is_exception, pattern) = match line.strip_prefix('!') {
                Some(pattern) => (true, pattern.trim()),
                None => (false, line),
            };
            let pattern = pattern.trim_start_matches('/').to_owned();
            IgnoreRule { pattern, is_exception }
        });
        IgnoreRules(rules.collect())
    }

    /// Whether a file is left out: the last rule decides that matches it, or a directory above it.
    pub(super) fn excludes(&self, path: &str) -> bool {
        let applies = |rule: &&IgnoreRule| {
            let mut ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
            ends.any(|end| path_matches(&rule.pattern, &path[..end]))
        };
        self.0.iter().rev().find(applies).is_some_and(|rule| !rule.is_exception)
    }

    /// Whether no file below an excluded directory can be sent.
    pub(super) fn has_no_exceptions(&self) -> bool {
        self.0.iter().all(|rule| !rule.is_exception)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_that_matches_decides() {
        let text =
            "# comment\n\nnode_modules\n**/*.log\n/build/\n*.md\n!README.md\ndata/**\n!data/keep\n";
        let rules = IgnoreRules::parse(text);
        let check =
            |path: &str, expected: bool| assert_eq!(rules.excludes(path), expected, "{path}");
        check("node_modules/a/b.js", true);
        check("web/node_modules/a.js", false);
        check("a.log", true);
        check("deep/er/a.log", true);
        check("build/out", true);
        check("src/build/out", false);
        check("CHANGES.md", true);
        check("README.md", false);
        check("docs/a.md", false);
        check("data/x/y", true);
        check("data/keep", false);
        check("data/keep/z", false);
        assert!(!rules.has_no_exceptions());
        assert!(IgnoreRules::parse("a\nb").has_no_exceptions());
        assert!(!IgnoreRules::default().excludes("a"));
    }
}
