//! Faults of the file of SQLite.

use std::time::Duration;

use super::World;
use crate::*;

#[tokio::test]
async fn a_damaged_file_is_refused() {
    let world = World::new();
    for n in 0..50 {
        world.chain(&format!("t{n}")).await;
    }
    let World { home, store } = world;
    drop(store);
    let path = home.path().join("stead.db");
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    // The writer's thread closes the file last; until then the pages are in the log.
    while home.path().join("stead.db-wal").exists() {
        assert!(std::time::Instant::now() < deadline, "the log is still there");
        std::thread::yield_now();
    }
    let mut bytes = std::fs::read(&path).unwrap();
    for page in bytes.chunks_mut(4096).skip(2) {
        page[..64].fill(0xAA);
    }
    std::fs::write(&path, bytes).unwrap();
    let refused = Store::open(home.path()).unwrap_err();
    assert!(matches!(refused, OpenError::Damaged { .. }), "{refused:?}");
}
