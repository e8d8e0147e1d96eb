//! `stead screen`: renders a recording.

use std::{
    io::Write,
    process::{Command, Stdio},
};

const RECORDING: &[u8] = b"one\r\n\x1b[1mtwo\x1b[m\x1b]2;demo\x07 <&>\r\nthree";

fn screen(arguments: &[&str]) -> String {
    let mut child = Command::new(harness::program())
        .arg("screen")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // With `--cut` the program may close its input before the end.
    let _ = child.stdin.take().unwrap().write_all(RECORDING);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_recording_is_shown_in_every_format() {
    assert_eq!(screen(&["--format", "text"]), "one\ntwo <&>\nthree\n");
    assert_eq!(screen(&["--format", "text", "--rows", "2"]), "one\ntwo <&>\nthree\n");
    assert_eq!(
        screen(&["--format", "text", "--rows", "2", "--scrollback", "0"]),
        "two <&>\nthree\n"
    );
    let picture = screen(&[]);
    assert_eq!(
        picture.escape_debug().to_string(),
        r"\u{1b}c\u{1b}[?25h\u{1b}[?12l\u{1b}[20lone\r\n\u{1b}[1mtwo\u{1b}[m <&>\r\nthree\u{1b}]2;demo\u{1b}\\\u{1b}[3;5He"
    );
    let html = screen(&["--format", "html"]);
    assert!(
        html.contains("two") && html.contains("&lt;&amp;&gt;") && !html.contains("<&>"),
        "{html}"
    );
    let json: serde_json::Value = serde_json::from_str(&screen(&["--format", "json"])).unwrap();
    assert_eq!(
        (&json["cols"], &json["rows"], &json["title"]),
        (&80.into(), &24.into(), &"demo".into())
    );
    assert_eq!(json["cursor"], serde_json::json!({"row": 2, "col": 5, "visible": true}));
    assert_eq!(json["lines"][1]["text"], "two <&>");
}

#[test]
fn a_recording_can_be_cut_at_any_byte() {
    assert_eq!(screen(&["--format", "text", "--cut", "2"]), "on\n");
    // In the middle of an escape sequence: the screen shows the bytes up to it.
    let picture = screen(&["--cut", "7"]);
    assert!(picture.ends_with("\x1b["), "{}", picture.escape_debug());
    assert_eq!(screen(&["--format", "text", "--cut", "999"]), "one\ntwo <&>\nthree\n");
}

#[test]
fn the_help_has_examples_and_every_option() {
    let output = Command::new(harness::program()).args(["screen", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for word in
        ["Examples:", "--cols", "--rows", "--scrollback", "--format", "--cut", "stead screen --cut"]
    {
        assert!(help.contains(word), "{word}: {help}");
    }
}
