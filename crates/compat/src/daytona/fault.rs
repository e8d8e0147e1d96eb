//! What went wrong with a repository, in the words that clients know it by.

use axum::http::StatusCode;

/// What `git` says, and what clients call it.
const KINDS: [(&str, StatusCode, &str); 26] = [
    ("authentication failed", StatusCode::UNAUTHORIZED, "GIT_AUTH_FAILED"),
    ("could not read username", StatusCode::UNAUTHORIZED, "GIT_AUTH_FAILED"),
    ("could not read password", StatusCode::UNAUTHORIZED, "GIT_AUTH_FAILED"),
    ("permission denied (publickey", StatusCode::UNAUTHORIZED, "GIT_AUTH_FAILED"),
    ("returned error: 401", StatusCode::UNAUTHORIZED, "GIT_AUTH_FAILED"),
    ("returned error: 403", StatusCode::UNAUTHORIZED, "GIT_AUTH_FAILED"),
    ("[remote rejected]", StatusCode::UNPROCESSABLE_ENTITY, "GIT_REMOTE_REJECTED"),
    ("[rejected]", StatusCode::CONFLICT, "GIT_PUSH_REJECTED"),
    ("automatic merge failed", StatusCode::CONFLICT, "GIT_MERGE_CONFLICT"),
    ("conflict (", StatusCode::CONFLICT, "GIT_MERGE_CONFLICT"),
    ("unmerged files", StatusCode::CONFLICT, "GIT_MERGE_CONFLICT"),
    ("would be overwritten by", StatusCode::CONFLICT, "GIT_DIRTY_WORKTREE"),
    ("commit your changes or stash them", StatusCode::CONFLICT, "GIT_DIRTY_WORKTREE"),
    ("a branch named", StatusCode::CONFLICT, "GIT_BRANCH_EXISTS"),
    ("remote branch", StatusCode::NOT_FOUND, "GIT_BRANCH_NOT_FOUND"),
    ("couldn't find remote ref", StatusCode::NOT_FOUND, "GIT_BRANCH_NOT_FOUND"),
    ("known to git", StatusCode::NOT_FOUND, "GIT_BRANCH_NOT_FOUND"),
    ("invalid reference", StatusCode::NOT_FOUND, "GIT_BRANCH_NOT_FOUND"),
    ("not a valid ref", StatusCode::NOT_FOUND, "GIT_BRANCH_NOT_FOUND"),
    ("not a git repository", StatusCode::NOT_FOUND, "GIT_REPO_NOT_FOUND"),
    ("does not appear to be a git repository", StatusCode::NOT_FOUND, "GIT_REPO_NOT_FOUND"),
    ("cannot change to", StatusCode::NOT_FOUND, "GIT_REPO_NOT_FOUND"),
    ("does not exist", StatusCode::NOT_FOUND, "GIT_REPO_NOT_FOUND"),
    ("repository not found", StatusCode::NOT_FOUND, "GIT_REPO_NOT_FOUND"),
    ("unable to access", StatusCode::BAD_GATEWAY, "GIT_TRANSPORT_FAILED"),
    ("could not read from remote", StatusCode::BAD_GATEWAY, "GIT_TRANSPORT_FAILED"),
];

/// What clients call what went wrong, by the first words that fit.
pub(super) fn kind(said: &str) -> Option<(StatusCode, &'static str)> {
    let said = said.to_lowercase();
    let (_, status, code) = KINDS.iter().find(|(words, ..)| said.contains(words))?;
    Some((*status, code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_wrong_has_the_name_that_clients_know() {
        for (said, expected) in [
            ("fatal: Authentication failed for 'https://x/'", Some("GIT_AUTH_FAILED")),
            ("fatal: not a git repository (or any of the parent", Some("GIT_REPO_NOT_FOUND")),
            ("fatal: cannot change to '/x': No such file", Some("GIT_REPO_NOT_FOUND")),
            ("fatal: a branch named 'x' already exists", Some("GIT_BRANCH_EXISTS")),
            (
                "error: pathspec 'x' did not match any file(s) known to git",
                Some("GIT_BRANCH_NOT_FOUND"),
            ),
            ("fatal: Remote branch x not found in upstream origin", Some("GIT_BRANCH_NOT_FOUND")),
            (" ! [rejected] main -> main (fetch first)", Some("GIT_PUSH_REJECTED")),
            (" ! [remote rejected] main -> main (hook)", Some("GIT_REMOTE_REJECTED")),
            ("CONFLICT (content): Merge conflict in a", Some("GIT_MERGE_CONFLICT")),
            ("Your local changes would be overwritten by checkout", Some("GIT_DIRTY_WORKTREE")),
            ("fatal: unable to access 'https://x/': Could not", Some("GIT_TRANSPORT_FAILED")),
            ("nothing to commit, working tree clean", None),
        ] {
            assert_eq!(kind(said).map(|(_, code)| code), expected, "{said}");
        }
    }
}
