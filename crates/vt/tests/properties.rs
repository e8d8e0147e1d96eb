//! Properties that hold for any input.
#![allow(clippy::unwrap_used, missing_docs)]

use proptest::prelude::*;
use vt::{Screen, Size};

/// Bytes that resemble the output of programs: text, controls, sequences, garbage.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(piece(), 0..60).prop_map(|pieces| pieces.concat())
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![4 => 0..12u32, 1 => 0..300u32, 1 => Just(99999u32)];
    let params = proptest::collection::vec(number, 0..4)
        .prop_map(|n| n.iter().map(u32::to_string).collect::<Vec<_>>().join(";"));
    let colors = prop_oneof![
        (0..110u32).prop_map(|n| format!("\x1b[{n}m")),
        (30..50u32, 0..256u32).prop_map(|(a, n)| format!("\x1b[{a};5;{n}m")),
        (any::<u8>(), any::<u8>()).prop_map(|(r, g)| format!("\x1b[48;2;{r};{g};7m")),
        (0..7u32).prop_map(|n| format!("\x1b[4:{n}m")),
        (0..256u32).prop_map(|n| format!("\x1b[58:5:{n}m")),
    ];
    let modes = prop_oneof![
        Just(1),
        Just(2),
        Just(5),
        Just(6),
        Just(7),
        Just(12),
        Just(25),
        Just(45),
        Just(47),
        Just(66),
        Just(69),
        Just(9),
        Just(1000),
        Just(1002),
        Just(1003),
        Just(1004),
        Just(1006),
        Just(1016),
        Just(1047),
        Just(1048),
        Just(1049),
        Just(2004),
        Just(2026),
        Just(40),
    ];
    let text = prop_oneof![
        4 => "[ -~]{1,30}".prop_map(String::into_bytes),
        1 => "[ -~]{60,200}".prop_map(String::into_bytes),
        2 => "[é中文字a😀\u{301}\u{200d}ｆ─ ]{1,12}".prop_map(String::into_bytes),
    ];
    let final_byte = prop_oneof![
        3 => proptest::sample::select(b"@ABCDEFGHIJKLMPSTXZ`abcdefghlmnrstux".to_vec()),
        1 => 0x40..0x7fu8,
    ];
    prop_oneof![
        6 => text,
        3 => proptest::sample::select(vec![b"\r\n".to_vec(), b"\n".to_vec(), b"\r".to_vec(), b"\x08".to_vec(), b"\t".to_vec(), b"\x0e".to_vec(), b"\x0f".to_vec(), b"\x07".to_vec(), b"\x0b".to_vec(), vec![0xc2, 0x84], vec![0xc2, 0x9b], b"\x18".to_vec()]),
        4 => colors.prop_map(String::into_bytes),
        6 => (params.clone(), final_byte).prop_map(|(p, f)| [b"\x1b[", p.as_bytes(), &[f]].concat()),
        3 => (modes, any::<bool>()).prop_map(|(m, on)| format!("\x1b[?{m}{}", if on { 'h' } else { 'l' }).into_bytes()),
        1 => any::<bool>().prop_map(|on| format!("\x1b[4{}", if on { 'h' } else { 'l' }).into_bytes()),
        2 => (params.clone(), proptest::sample::select(vec!["?J", "?K", " @", " A", "'}", "'~", "\"q", " q", "$v", "$x", "$z", "${", "$r", "$t", "*x", ">u", "<u", "=u", ">m", "!p", "\"p", "?s", "?r"]))
            .prop_map(|(p, f)| {
                let (head, tail) = if f.starts_with(['?', '>', '<', '=']) { f.split_at(1) } else { ("", f) };
                format!("\x1b[{head}{p}{tail}").into_bytes()
            }),
        2 => proptest::sample::select(b"678=>DEHMVWZcno|}~".to_vec()).prop_map(|b| vec![0x1b, b]),
        1 => (proptest::sample::select(b"()*+-.".to_vec()), proptest::sample::select(b"0AB4CRQKYEZH=".to_vec())).prop_map(|(a, b)| vec![0x1b, a, b]),
        1 => Just(b"\x1b#8".to_vec()),
        1 => "[ -~]{0,10}".prop_map(|t| format!("\x1b]2;{t}\x07").into_bytes()),
        1 => "[a-z]{0,3}".prop_map(|t| format!("\x1b]8;id={t};http://x/{t}\x1b\\").into_bytes()),
        1 => Just(b"\x1b]8;;\x1b\\".to_vec()),
        1 => (0..20u32, 0..6u32).prop_map(|(i, c)| format!("\x1b]4;{i};rgb:{c}{c}/00/ff\x07").into_bytes()),
        1 => Just(b"\x1b]7;file://h/tmp/a%20b\x07\x1b]133;D;3\x07\x1b[22t".to_vec()),
        1 => Just(b"\x1bP$qm\x1b\\\x1bPq#0;2\x1b\\\x1b_Gx=1;AAAA\x1b\\".to_vec()),
        2 => proptest::collection::vec(any::<u8>(), 1..6),
    ]
}

/// A fixed seed by default; with PROPTEST_CASES more cases and a random seed.
fn config() -> ProptestConfig {
    let soak = std::env::var_os("PROPTEST_CASES").is_some();
    let fixed = ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        ..ProptestConfig::with_cases(400)
    };
    let config = if soak { ProptestConfig::default() } else { fixed };
    ProptestConfig { failure_persistence: None, ..config }
}

fn size() -> impl Strategy<Value = Size> {
    (2..40u16, 1..12u16).prop_map(|(cols, rows)| Size { cols, rows })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_result_does_not_depend_on_how_the_input_is_split(size in size(), bytes in stream(), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let mut whole = Screen::new(size, 20);
        let all = whole.feed(&bytes);
        let mut at: Vec<usize> = cuts.iter().map(|i| i.index(bytes.len() + 1)).collect();
        at.push(bytes.len());
        at.sort_unstable();
        let (mut cut, mut from) = (Screen::new(size, 20), 0);
        let mut replies = Vec::new();
        for to in at {
            replies.extend(cut.feed(&bytes[from..to]).replies);
            from = to;
        }
        prop_assert_eq!(show(&whole.snapshot()), show(&cut.snapshot()));
        prop_assert_eq!(whole.checkpoint(), cut.checkpoint());
        prop_assert_eq!(all.replies, replies);
    }

    #[test]
    fn a_snapshot_of_a_restored_snapshot_is_the_same(size in size(), bytes in stream()) {
        let mut screen = Screen::new(size, 20);
        screen.feed(&bytes);
        let first = screen.snapshot();
        let mut again = Screen::new(size, 20);
        let fed = again.feed(&first);
        prop_assert_eq!(show(&fed.replies), "");
        prop_assert_eq!(show(&again.snapshot()), show(&first));
    }

    #[test]
    fn a_checkpoint_restores_the_whole_state(size in size(), bytes in stream(), more in stream()) {
        let mut screen = Screen::new(size, 20);
        screen.feed(&bytes);
        let saved = screen.checkpoint();
        let mut restored = Screen::restore(&saved).unwrap();
        prop_assert_eq!(show(&restored.snapshot()), show(&screen.snapshot()));
        let (a, b) = (screen.feed(&more), restored.feed(&more));
        prop_assert_eq!(a, b);
        prop_assert_eq!(show(&restored.snapshot()), show(&screen.snapshot()));
    }

    #[test]
    fn a_resize_is_possible_at_any_time(bytes in stream(), sizes in proptest::collection::vec(size(), 1..6)) {
        let mut screen = Screen::new(Size { cols: 20, rows: 5 }, 20);
        for size in sizes {
            screen.feed(&bytes);
            screen.resize(size);
            let cursor = screen.cursor();
            prop_assert!(cursor.row < size.rows && cursor.col < size.cols);
            prop_assert_eq!(screen.size(), size);
            let _ = (screen.text(10), screen.html(10));
        }
    }

    #[test]
    fn a_damaged_checkpoint_is_refused(bytes in stream(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let mut screen = Screen::new(Size { cols: 10, rows: 3 }, 5);
        screen.feed(&bytes);
        let mut saved = screen.checkpoint();
        let at = at.index(saved.len());
        saved[at] ^= 1 << bit;
        prop_assert!(Screen::restore(&saved).is_err());
    }
}

fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
