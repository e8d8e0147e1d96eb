//! Maps the error messages of `git` to the codes of Daytona's API.

use axum::http::StatusCode;

/// Parts of error messages in lower case, each with its status and code. The first match counts.
const ERROR_CODES: [(&str, StatusCode, &str); 26] = [
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

/// The status and code of an error message; `None` if it is unknown.
pub(super) fn error_code(output: &str) -> Option<(StatusCode, &'static str)> {
    let output = output.to_lowercase();
    let (_, status, code) = ERROR_CODES.iter().find(|(part, ..)| output.contains(part))?;
    Some((*status, code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_messages_have_the_codes_of_the_api() {
        for (message, expected) in [
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
            assert_eq!(error_code(message).map(|(_, code)| code), expected, "{message}");
        }
    }
}
