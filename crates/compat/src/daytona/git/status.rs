//! Parses the output of `git status --porcelain=v2 -z`.

use serde_json::{Value, json};

/// The name of a change in the API, by its letter.
fn change_name(letter: u8) -> &'static str {
    match letter {
        b'M' | b'T' => "Modified",
        b'A' => "Added",
        b'D' => "Deleted",
        b'R' => "Renamed",
        b'C' => "Copied",
        b'U' => "Updated but unmerged",
        b'?' => "Untracked",
        _ => "Unmodified",
    }
}

/// Parses the output into the JSON of the API.
pub(super) fn parse(output: &str) -> Value {
    let (mut branch, mut upstream, mut ahead, mut behind) = ("", "", 0, 0);
    let mut files = Vec::new();
    let mut entries = output.split('\0').filter(|entry| !entry.is_empty());
    while let Some(entry) = entries.next() {
        if let Some(rest) = entry.strip_prefix("# branch.") {
            match rest.split_once(' ') {
                Some(("head", name)) => branch = name,
                Some(("upstream", name)) => upstream = name,
                Some(("ab", both)) => {
                    let mut numbers = both
                        .split(' ')
                        .map(|it| it.get(1..).unwrap_or_default().parse::<u64>().unwrap_or(0));
                    (ahead, behind) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
                }
                _ => {}
            }
            continue;
        }
        let (kind, rest) = entry.split_once(' ').unwrap_or((entry, ""));
        // The number of fields before the name.
        let before = match kind {
            "1" => 7,
            "2" => 8,
            "u" => 9,
            _ => 0,
        };
        let letters = match before {
            0 => b"??",
            _ => rest.as_bytes().get(..2).unwrap_or(b".."),
        };
        let name = rest.splitn(before + 1, ' ').last().unwrap_or_default();
        let extra = if kind == "2" { entries.next().unwrap_or_default() } else { "" };
        files.push(json!({
            "name": name,
            "staging": change_name(letters[0]),
            "worktree": change_name(letters[1]),
            "extra": extra,
        }));
    }
    let detached = branch == "(detached)";
    json!({
        "currentBranch": if detached { "HEAD" } else { branch },
        "detached": detached,
        "upstream": upstream,
        "branchPublished": !upstream.is_empty(),
        "ahead": ahead,
        "behind": behind,
        "fileStatus": files,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_parsed_into_the_json_of_the_api() {
        let output = "# branch.oid 1\0# branch.head main\0# branch.upstream origin/main\0\
            # branch.ab +2 -1\0\
            1 M. N... 100644 100644 100644 a b changed name.txt\0\
            1 .D N... 100644 100644 000000 a b deleted.txt\0\
            2 R. N... 100644 100644 100644 a b R100 new.txt\0old.txt\0\
            u UU N... 100644 100644 100644 100644 a b c both.txt\0\
            ? untracked.txt\0";
        let file = |name: &str, staging: &str, worktree: &str, extra: &str| json!({"name": name, "staging": staging, "worktree": worktree, "extra": extra});
        let unmerged = "Updated but unmerged";
        let expected = json!({
            "currentBranch": "main",
            "detached": false,
            "upstream": "origin/main",
            "branchPublished": true,
            "ahead": 2,
            "behind": 1,
            "fileStatus": [
                file("changed name.txt", "Modified", "Unmodified", ""),
                file("deleted.txt", "Unmodified", "Deleted", ""),
                file("new.txt", "Renamed", "Unmodified", "old.txt"),
                file("both.txt", unmerged, unmerged, ""),
                file("untracked.txt", "Untracked", "Untracked", ""),
            ],
        });
        assert_eq!(parse(output), expected);
        let nothing = parse("# branch.oid (initial)\0# branch.head (detached)\0");
        assert_eq!((&nothing["detached"], &nothing["fileStatus"]), (&json!(true), &json!([])));
    }
}
