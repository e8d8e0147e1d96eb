//! Responses of the terminal to queries of a program.

use serde_json::json;

use harness::{
    Home, Server,
    terminal::{open, shows},
};

/// Requests a checksum of "ab", then the position of the cursor, and prints the answers up to the final `R`.
const ASK: &str = r#"stty raw -echo
printf 'ab\033[1;1;1;1;1;2*y\033[6n'
IFS= read -r -d R answer
stty sane
printf '\r\nanswer %q\r\n' "$answer"
sleep 60"#;

fn check_response(arguments: &[&str], environment: &[(&str, &str)], expected: &str) {
    let home = Home::new();
    let server = Server::start_as(&home, arguments, environment);
    let client = server.client();
    let id = open(&client, "asks", json!({"cmd": ["bash", "-c", ASK]}));
    shows(&client, &id, &format!("answer {expected}"));
}

#[test]
fn the_screen_is_summed_only_where_the_owner_allows_it() {
    check_response(&[], &[], r"$'\E[1;3'");
    let summed = r"$'\EP1!~00C3\E\\\E[1;3'";
    check_response(&["--set", "vt.checksum_reports=true"], &[], summed);
    check_response(&[], &[("STEAD_VT_CHECKSUM_REPORTS", "true")], summed);
}
