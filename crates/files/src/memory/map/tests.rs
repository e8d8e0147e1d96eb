use proptest::prelude::*;

use crate::memory::map::*;

fn path(text: &str) -> Relative {
    Relative::parse(text).unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn put(at: &str, content: &str) -> MemoryChange {
    let bytes = Bytes::copy_from_slice(content.as_bytes());
    MemoryChange::Put { path: path(at), bytes, expect: Expect::Anything }
}

fn change(map: &mut Map, change: &MemoryChange) -> Result<(), String> {
    let op = map.plan(change, &limits(), now()).map_err(|error| error.to_string())?;
    map.apply(&op);
    Ok(())
}

fn limits() -> HotLimits {
    HotLimits { entries: 6, bytes: 100, entry_bytes: 50 }
}

fn names(map: &Map, at: &str, depth: u32) -> Vec<String> {
    map.list(&path(at), depth, None, 100).unwrap().into_iter().map(|stat| stat.path).collect()
}

#[test]
fn directories_exist_while_they_have_entries() {
    let mut map = Map::default();
    change(&mut map, &put("a/b/c", "1")).unwrap();
    change(&mut map, &put("a-b", "2")).unwrap();
    assert_eq!(names(&map, "", 1), ["a", "a-b"]);
    assert_eq!(names(&map, "", 9), ["a", "a/b", "a/b/c", "a-b"]);
    assert_eq!(names(&map, "a/b", 1), ["a/b/c"]);
    assert_eq!(map.stat(&path("a/b")).unwrap().kind, FileKind::Directory);
    change(&mut map, &MemoryChange::Remove { path: path("a/b/c") }).unwrap();
    assert_eq!(names(&map, "", 9), ["a-b"]);
    change(&mut map, &MemoryChange::MakeDirectory { path: path("d") }).unwrap();
    assert_eq!(names(&map, "", 9), ["a-b", "d"]);
}

#[test]
fn invalid_changes_are_refused_with_a_reason() {
    let mut map = Map::default();
    change(&mut map, &put("a/b", "1")).unwrap();
    let mut refused = |refuse: MemoryChange| change(&mut map, &refuse).unwrap_err();
    assert_eq!(refused(put("a", "")), "\"a\" is a directory");
    assert_eq!(refused(put("", "")), "\"\" is a directory");
    assert_eq!(refused(put("a/b/c", "")), "\"a/b/c\" or one of its parents is not a directory");
    assert_eq!(refused(MemoryChange::Remove { path: path("a") }), "\"a\" is not empty");
    assert_eq!(refused(MemoryChange::Remove { path: path("x") }), "\"x\" does not exist");
    assert_eq!(refused(MemoryChange::MakeDirectory { path: path("a") }), "\"a\" already exists");
    let within = MemoryChange::Move { from: path("a"), to: path("a/c"), expect: Expect::Anything };
    assert_eq!(refused(within), "invalid path \"a/c\": it is below the source");
    let onto = MemoryChange::Move { from: path("a/b"), to: path("a/b"), expect: Expect::Absent };
    change(&mut map, &onto).unwrap();
    assert_eq!(names(&map, "", 2), ["a", "a/b"]);
}

#[test]
fn the_limits_are_exact() {
    let mut map = Map::default();
    assert_eq!(
        change(&mut map, &put("a", &"x".repeat(51))).unwrap_err(),
        "\"a\" exceeds the limit of 50 bytes"
    );
    change(&mut map, &put("a", &"x".repeat(49))).unwrap();
    change(&mut map, &put("b", &"x".repeat(49))).unwrap();
    assert_eq!(map.usage(), (2, 100));
    let full = "the limit of 100 bytes of memories is reached";
    assert_eq!(change(&mut map, &put("c", "")).unwrap_err(), full);
    change(&mut map, &put("a", "")).unwrap();
    for name in ["c", "d", "e", "f"] {
        change(&mut map, &put(name, "")).unwrap();
    }
    let full = "the limit of 6 memories is reached";
    assert_eq!(change(&mut map, &put("g", "")).unwrap_err(), full);
    change(&mut map, &put("f", "1")).unwrap();
}

#[test]
fn a_write_may_have_a_precondition() {
    let mut map = Map::default();
    let write = |expect| MemoryChange::Put { path: path("k"), bytes: Bytes::new(), expect };
    change(&mut map, &write(Expect::Absent)).unwrap();
    change(&mut map, &write(Expect::Absent)).unwrap_err();
    let version = map.file(&path("k")).unwrap().version;
    change(&mut map, &write(Expect::Version(version))).unwrap();
    change(&mut map, &write(Expect::Version(version))).unwrap_err();
}

fn changes() -> impl Strategy<Value = MemoryChange> {
    let path = prop::sample::select(vec!["", "a", "b", "a/a", "a/b", "b/a", "a/a/a"])
        .prop_map(|text| Relative::parse(text).unwrap());
    let bytes = prop::collection::vec(any::<u8>(), 0..60).prop_map(Bytes::from);
    let expect = prop_oneof![Just(Expect::Anything), Just(Expect::Absent)];
    prop_oneof![
        4 => (path.clone(), bytes, expect.clone())
            .prop_map(|(path, bytes, expect)| MemoryChange::Put { path, bytes, expect }),
        1 => path.clone().prop_map(|path| MemoryChange::MakeDirectory { path }),
        1 => path.clone().prop_map(|path| MemoryChange::Remove { path }),
        1 => path.clone().prop_map(|path| MemoryChange::RemoveTree { path }),
        2 => (path.clone(), path, expect)
            .prop_map(|(from, to, expect)| MemoryChange::Move { from, to, expect }),
    ]
}

proptest! {
    /// After any changes the limits hold, the usage is correct, no file has entries below it, and neither
    /// pagination nor replaying `ops` changes the result.
    #[test]
    fn the_map_stays_a_tree_within_its_limits(changes in prop::collection::vec(changes(), 0..40)) {
        let mut map = Map::default();
        let limits = limits();
        for requested in &changes {
            let before = map.clone();
            if change(&mut map, requested).is_err() {
                prop_assert_eq!(&before, &map);
            }
            let (entries, bytes) = map.usage();
            prop_assert!(entries <= limits.entries && bytes <= limits.bytes);
            let sum: u64 = map.nodes.iter().map(|(key, node)| node.size(key)).sum();
            prop_assert_eq!(bytes, sum);
            for key in map.nodes.keys() {
                map.no_file_above(&path(key)).unwrap();
            }
        }
        let mut again = Map::default();
        map.ops().for_each(|op| again.apply(&op));
        prop_assert_eq!(&again.nodes, &map.nodes);
        // Pagination does not change the list.
        let all = map.list(&Relative::root(), 9, None, 100).unwrap();
        let (mut paged, mut after): (Vec<Stat>, Option<Relative>) = (Vec::new(), None);
        loop {
            let page = map.list(&Relative::root(), 9, after.as_ref(), 2).unwrap();
            let Some(last) = page.last() else { break };
            after = Some(path(&last.path));
            paged.extend(page);
        }
        prop_assert_eq!(paged, all);
    }
}
