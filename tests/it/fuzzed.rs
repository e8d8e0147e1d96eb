//! The checks of the fuzzer on its seeds and on inputs that are the same in every run: the short form of `make fuzz`.

use std::fs;

use proptest::{prelude::*, sample::Index, test_runner::RngSeed};

#[path = "../../fuzz/checks/log.rs"]
mod log;
#[path = "../../fuzz/checks/screen.rs"]
mod screen;
#[path = "../../fuzz/checks/wire.rs"]
mod wire;

fn same_in_every_run(cases: u32) -> ProptestConfig {
    ProptestConfig {
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    }
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..400)
}

/// A seed of the screen with some of its bytes changed.
fn changed_seed() -> impl Strategy<Value = Vec<u8>> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/screen");
    let files = fs::read_dir(dir).expect("the seeds of the screen");
    let mut seeds: Vec<_> = files.map(|file| file.expect("a seed").path()).collect();
    seeds.sort();
    let seeds: Vec<_> = seeds.iter().map(|path| fs::read(path).expect("a seed")).collect();
    let changes = proptest::collection::vec((any::<Index>(), any::<u8>()), 0..8);
    (proptest::sample::select(seeds), changes).prop_map(|(mut seed, changes)| {
        for (place, byte) in changes {
            let place = place.index(seed.len());
            seed[place] = byte;
        }
        seed
    })
}

proptest! {
    #![proptest_config(same_in_every_run(300))]

    #[test]
    fn the_screen_holds_with_any_input(seed in changed_seed(), bytes in bytes()) {
        screen::check(&seed);
        screen::check(&bytes);
    }

    #[test]
    fn a_log_with_any_content_can_be_opened(bytes in bytes()) {
        log::check(&bytes);
    }

    #[test]
    fn any_bytes_on_a_socket_are_refused_or_understood(bytes in bytes()) {
        wire::check(&bytes);
    }
}
