#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::field::{Field, Rest};
use super::*;

/// Random payload bytes for a type. Lengths are small numbers, so that the majority can be decoded.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..6).prop_map(|bytes| {
            let mut out = Vec::new();
            bytes.put(&mut out);
            out
        }),
        2 => (0u32..3).prop_map(|n| n.to_le_bytes().to_vec()),
        1 => any::<u64>().prop_map(|n| n.to_le_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..3),
    ];
    proptest::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

fn round<T: PartialEq + std::fmt::Debug>(
    frame: &Frame<'_>,
    decode: impl Fn(&Frame<'_>) -> Result<Option<T>, Malformed>,
    encode: impl Fn(&T, &mut Vec<u8>) -> Result<(), TooLarge>,
) {
    let Ok(Some(message)) = decode(frame) else { return };
    let mut bytes = Vec::new();
    encode(&message, &mut bytes).unwrap();
    let mut decoder = Decoder::default();
    decoder.feed(&bytes);
    let again = decoder.next_frame().unwrap().unwrap();
    assert_eq!(again, *frame, "a decoded frame encodes to the same bytes");
    assert_eq!(decode(&again).unwrap().unwrap(), message);
    assert_eq!(decoder.next_frame().unwrap(), None);
}

proptest! {
    #[test]
    fn a_decoded_frame_encodes_to_the_same_bytes(kind in 0u8..=160, payload in payload()) {
        let frame = Frame { kind, payload: &payload };
        round(&frame, Request::decode, Request::encode);
        round(&frame, Event::decode, Event::encode);
    }

    #[test]
    fn arbitrary_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut decoder = Decoder::default();
        decoder.feed(&bytes);
        while let Ok(Some(frame)) = decoder.next_frame() {
            let _ = Request::decode(&frame);
            let _ = Event::decode(&frame);
        }
    }

    #[test]
    fn frames_are_reassembled_from_pieces_of_any_size(
        texts in proptest::collection::vec("[a-z]{0,12}", 1..8),
        cut in 1usize..40,
    ) {
        let sent: Vec<Request> = texts
            .into_iter()
            .enumerate()
            .map(|(seq, terminal)| Request::Close { seq: seq as u32, terminal })
            .collect();
        let mut bytes = Vec::new();
        for request in &sent {
            request.encode(&mut bytes).unwrap();
        }
        let mut decoder = Decoder::default();
        let mut got = Vec::new();
        for piece in bytes.chunks(cut) {
            decoder.feed(piece);
            while let Some(frame) = decoder.next_frame().unwrap() {
                got.push(Request::decode(&frame).unwrap().unwrap());
            }
        }
        prop_assert_eq!(got, sent);
        prop_assert_eq!(decoder.pending(), 0);
    }
}

fn open() -> Request {
    Request::Open {
        seq: 7,
        terminal: "term_1".into(),
        argv: vec![b"bash".to_vec(), b"-l".to_vec()],
        cwd: b"/tmp".to_vec(),
        env: vec![(b"A".to_vec(), b"\xff".to_vec())],
        cols: 80,
        rows: 24,
        dir: b"/d".to_vec(),
        log_limit: 1 << 20,
        base_offset: 9,
        shell: Shell::Bash,
        state: vec![("cwd".into(), b"/x".to_vec())],
        notice: b"hi".to_vec(),
    }
}

/// Running hosts depend on these bytes: they may never change.
#[test]
fn the_encoding_is_frozen() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let request = |message: Request| {
        let mut out = Vec::new();
        message.encode(&mut out).unwrap();
        hex(&out)
    };
    let event = |message: Event| {
        let mut out = Vec::new();
        message.encode(&mut out).unwrap();
        hex(&out)
    };
    assert_eq!(
        request(Request::Hello { version: 1, features: 3 }),
        "0b0000000101000300000000000000"
    );
    assert_eq!(request(Request::Ping { seq: 5 }), "050000000205000000");
    assert_eq!(
        request(open()),
        "690000000307000000060000007465726d5f3102000000040000006261736802000000\
         2d6c040000002f746d70010000000100000041\
         01000000ff50001800020000002f640000100000000000090000000000000001\
         0100000003000000637764020000002f78020000006869"
    );
    assert_eq!(
        event(Event::Reply { seq: 5, code: ReplyCode::Busy, message: "no".into() }),
        "0d00000081050000000c00020000006e6f"
    );
    assert_eq!(
        event(Event::Exited { terminal: "t".into(), offset: 1, code: -1, signal: 9 }),
        "160000008601000000740100000000000000ffffffff09000000"
    );
}

#[test]
fn every_type_number_is_unique_and_in_the_range_of_its_direction() {
    for (number, name) in Request::TYPES {
        assert!((1..128).contains(number), "{name}");
    }
    for (number, name) in Event::TYPES {
        assert!(*number >= 128, "{name}");
    }
    for types in [Request::TYPES, Event::TYPES] {
        let mut numbers: Vec<u8> = types.iter().map(|(number, _)| *number).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), types.len(), "in rising order, none twice");
    }
}

#[test]
fn the_direct_writers_match_encode() {
    let mut direct = Vec::new();
    put_output(&mut direct, "t", 4, 5, b"abc").unwrap();
    put_command_output(&mut direct, "c", Stream::Stderr, 6, b"de").unwrap();
    let mut built = Vec::new();
    Event::Output { terminal: "t".into(), offset: 4, time_ms: 5, bytes: b"abc".to_vec() }
        .encode(&mut built)
        .unwrap();
    Event::CommandOutput {
        command: "c".into(),
        stream: Stream::Stderr,
        offset: 6,
        bytes: b"de".to_vec(),
    }
    .encode(&mut built)
    .unwrap();
    assert_eq!(direct, built);
}

#[test]
fn an_unknown_type_is_not_an_error_and_has_a_seq() {
    let frame = Frame { kind: 99, payload: &[1, 0, 0, 0, 42] };
    assert_eq!(Request::decode(&frame), Ok(None));
    assert_eq!(Event::decode(&frame), Ok(None));
    assert_eq!(frame.seq(), Some(1));
}

#[test]
fn an_unknown_number_is_kept() {
    let code = ReplyCode::take(&mut Rest(&[0xff, 0xee])).unwrap();
    assert_eq!(code, ReplyCode::Other(0xeeff));
    assert_eq!(code.number(), 0xeeff);
}

#[test]
fn a_payload_with_missing_or_extra_bytes_is_malformed() {
    let mut bytes = Vec::new();
    open().encode(&mut bytes).unwrap();
    let payload = &bytes[5..];
    for end in 0..payload.len() {
        assert!(Request::decode(&Frame { kind: 3, payload: &payload[..end] }).is_err(), "{end}");
    }
    let longer = [payload, &[0]].concat();
    assert!(Request::decode(&Frame { kind: 3, payload: &longer }).is_err());
}

#[test]
fn invalid_frame_lengths_are_refused() {
    for bytes in [[0; 4], (MAX_FRAME as u32 + 1).to_le_bytes(), [0xff; 4]] {
        let mut decoder = Decoder::default();
        decoder.feed(&bytes);
        assert!(decoder.next_frame().is_err(), "{bytes:?}");
    }
}

#[test]
fn a_message_that_is_too_large_writes_nothing() {
    let mut out = b"before".to_vec();
    let message = Request::Apply { seq: 1, terminal: "t".into(), script: vec![0; MAX_FRAME] };
    assert!(message.encode(&mut out).is_err());
    assert_eq!(out, b"before");
}
