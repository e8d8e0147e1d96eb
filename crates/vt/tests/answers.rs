//! Replies to a program's terminal queries.
#![allow(clippy::unwrap_used, missing_docs)]

use vt::{Screen, Size};

/// Returns the replies of a fresh terminal to the given bytes.
fn replies(query: &str) -> String {
    let mut screen = Screen::new(Size { cols: 80, rows: 24 }, 100);
    screen.set_checksum_reports(true);
    String::from_utf8(screen.feed(query.as_bytes()).replies).unwrap()
}

#[track_caller]
fn check(table: &[(&str, &str)]) {
    for (query, expected) in table {
        assert_eq!(
            replies(query).escape_debug().to_string(),
            expected.escape_debug().to_string(),
            "{query:?}"
        );
    }
}

#[test]
fn the_terminal_reports_its_identity() {
    check(&[
        ("\x1b[c", "\x1b[?1;2c"),
        ("\x1b[0c", "\x1b[?1;2c"),
        ("\x1b[1c", ""),
        ("\x1bZ", "\x1b[?1;2c"),
        ("\x1b[>c", "\x1b[>0;276;0c"),
        ("\x1b[=c", "\x1bP!|00000000\x1b\\"),
        ("\x1b[>q", concat!("\x1bP>|stead(", env!("CARGO_PKG_VERSION"), ")\x1b\\")),
        ("\x1b[x", "\x1b[2;1;1;128;128;1;0x"),
    ]);
}

#[test]
fn the_terminal_reports_its_status() {
    check(&[
        ("\x1b[5n", "\x1b[0n"),
        ("\x1b[7;3H\x1b[6n", "\x1b[7;3R"),
        ("\x1b[7;3H\x1b[?6n", "\x1b[?7;3R"),
        ("\x1b[?15n", "\x1b[?13n"),
        ("\x1b[?25n", "\x1b[?20n"),
        ("\x1b[?26n", "\x1b[?27;1n"),
        ("\x1b[?55n", "\x1b[?50n"),
        ("\x1b[?62n", "\x1b[0*{"),
        ("\x1b[?63;12n", "\x1bP12!~0000\x1b\\"),
        ("\x1b[?75n", "\x1b[?70n"),
        ("\x1b[?85n", "\x1b[?83n"),
        ("\x1b[18t", "\x1b[8;24;80t"),
        ("\x1b[19t", "\x1b[9;24;80t"),
        // Between the last column and the next line.
        ("\x1b[1;80Hx\x1b[6n", "\x1b[1;80R"),
        ("\x1b[1;80Hx\x1b[?6n", "\x1b[?1;80R"),
        ("\x1b[1;80Hxy\x1b[6n", "\x1b[2;2R"),
        // The kitty keyboard protocol is not offered, because the browser's terminal does not have it.
        ("\x1b[?u", ""),
        ("\x1b[=5u\x1b[?u", ""),
        // Clients report no sizes in pixels.
        ("\x1b[14t\x1b[16t", ""),
    ]);
}

#[test]
fn settings_are_reported() {
    check(&[
        ("\x1bP$qm\x1b\\", "\x1bP1$r0m\x1b\\"),
        ("\x1b[1;31m\x1bP$qm\x1b\\", "\x1bP1$r0;1;31m\x1b\\"),
        ("\x1b[4:3;38;2;1;2;3m\x1bP$qm\x1b\\", "\x1bP1$r0;4:3;38:2::1:2:3m\x1b\\"),
        ("\x1b[5;6r\x1bP$qr\x1b\\", "\x1bP1$r5;6r\x1b\\"),
        ("\x1b[?69h\x1b[3;4s\x1bP$qs\x1b\\", "\x1bP1$r3;4s\x1b\\"),
        ("\x1b[1\"q\x1bP$q\"q\x1b\\", "\x1bP1$r1\"q\x1b\\"),
        ("\x1bP$q\"p\x1b\\", "\x1bP1$r61;1\"p\x1b\\"),
        ("\x1b[64;1\"p\x1bP$q\"p\x1b\\", "\x1bP1$r64;1\"p\x1b\\"),
        ("\x1b[4 q\x1bP$q q\x1b\\", "\x1bP1$r4 q\x1b\\"),
        ("\x1bP$q*x\x1b\\", "\x1bP1$r0*x\x1b\\"),
        ("\x1b[2*x\x1bP$q*x\x1b\\", "\x1bP1$r2*x\x1b\\"),
        ("\x1bP$q$}\x1b\\", "\x1bP1$r0$}\x1b\\"),
        ("\x1bP$q$~\x1b\\", "\x1bP1$r0$~\x1b\\"),
        ("\x1bP$qt\x1b\\", "\x1bP1$r24t\x1b\\"),
        ("\x1bP$qz\x1b\\", "\x1bP0$r\x1b\\"),
    ]);
}

#[test]
fn modes_are_reported() {
    check(&[
        ("\x1b[4$p", "\x1b[4;2$y"),
        ("\x1b[4h\x1b[4$p", "\x1b[4;1$y"),
        ("\x1b[20h\x1b[20$p", "\x1b[20;1$y"),
        ("\x1b[12$p", "\x1b[12;3$y"),
        ("\x1b[1$p\x1b[19$p", "\x1b[1;4$y\x1b[19;4$y"),
        ("\x1b[3$p", "\x1b[3;0$y"),
        ("\x1b[?7$p", "\x1b[?7;1$y"),
        ("\x1b[?2004h\x1b[?2004$p", "\x1b[?2004;1$y"),
        ("\x1b[?1049h\x1b[?47$p", "\x1b[?47;1$y"),
        ("\x1b[?67$p", "\x1b[?67;4$y"),
        ("\x1b[?9999$p", "\x1b[?9999;0$y"),
        // Columns are counted by code point, and programs that ask for clusters get that answer.
        ("\x1b[?2027h\x1b[?2027$p", "\x1b[?2027;0$y"),
    ]);
}

#[test]
fn colors_are_reported_as_they_were_set() {
    check(&[
        ("\x1b]4;1;rgb:ff/80/00\x07\x1b]4;1;?\x07", "\x1b]4;1;rgb:ffff/8080/0000\x1b\\"),
        ("\x1b]10;#fff\x07\x1b]10;?\x07", "\x1b]10;rgb:f0f0/f0f0/f0f0\x1b\\"),
        ("\x1b]10;?;?\x07", "\x1b]10;rgb:ffff/ffff/ffff\x1b\\\x1b]11;rgb:0000/0000/0000\x1b\\"),
        // The color of bold text, by both of its numbers.
        ("\x1b]5;0;#102030\x07\x1b]5;0;?\x07", "\x1b]5;0;rgb:1010/2020/3030\x1b\\"),
        ("\x1b]5;0;#102030\x07\x1b]4;256;?\x07", "\x1b]4;256;rgb:1010/2020/3030\x1b\\"),
        ("\x1b]4;260;#102030\x07\x1b]105;4\x07\x1b]5;4;?\x07", "\x1b]5;4;rgb:ffff/ffff/ffff\x1b\\"),
        ("\x1b]5;5;?\x07\x1b]4;261;?\x07\x1b]4;x;?\x07", ""),
    ]);
}

#[test]
fn a_checksum_is_the_sum_of_the_characters() {
    check(&[
        ("ab\x1b[1;1;1;1;1;1*y", "\x1bP1!~0061\x1b\\"),
        ("ab\x1b[1;1;1;1;1;2*y", "\x1bP1!~00C3\x1b\\"),
        // Blank and unwritten cells count as spaces; attributes and protection do not count.
        ("\x1b[9;1;5;5;5;5*y", "\x1bP9!~0020\x1b\\"),
        ("\x1b[1;4;7m\x1b[1\"qa\x1b[7;1;1;1;1;1*y", "\x1bP7!~0061\x1b\\"),
        // In origin mode positions are relative to the margins.
        ("\x1b[5;5HX\x1b[5;7r\x1b[?69h\x1b[5;7s\x1b[?6h\x1b[1;1;1;1;1;1*y", "\x1bP1!~0058\x1b\\"),
        ("\x1b[1;1;9;9;2;2*y", "\x1bP1!~0000\x1b\\"),
    ]);
    let mut screen = Screen::new(Size { cols: 80, rows: 24 }, 100);
    assert!(screen.feed(b"ab\x1b[1;1;1;1;1;2*y").replies.is_empty(), "off by default");
}

#[test]
fn replies_never_contain_output_of_programs() {
    check(&[
        ("\x1b]2;rm -rf\x07\x1b[21t", "\x1b]l\x1b\\"),
        ("\x1b]1;rm -rf\x07\x1b[20t", "\x1b]L\x1b\\"),
        ("\x1b]52;c;?\x07", ""),
        ("\x1b]52;c;cm0K\x07\x1b]52;c;?\x07", ""),
        ("\x1bP$qrm -rf\n\x1b\\", "\x1bP0$r\x1b\\"),
        ("\x1bP+q726d\x1b\\", "\x1bP0+r\x1b\\"),
        ("\x1bP+q436F\x1b\\", "\x1bP1+r436F=323536\x1b\\"),
    ]);
}
