//! Export and import, also of archives that are damaged or malicious.

use std::sync::Arc;

use super::{World, get, put, wall};
use crate::{ImportLimits, Workspace};
use model::ProjectId;
use store::PageRequest;

#[tokio::test]
async fn a_project_is_exported_and_imported_on_another_server() {
    let (here, there) = (World::new().await, World::new().await);
    let project = here.create("web").await;
    let id = project.project_id.clone();
    let (thread, _) = here.work("t", &id).await;
    let tree = here.tree(&project).await;
    put(&tree, "/workspace/src/main.rs", "fn main() {}").await;
    put(&tree, "/memories/hot/a/b", "warm").await;
    put(&tree, "/memories/persistent/c", "cold").await;
    let repo = Workspace::at(here.home.path(), &id).repo;
    std::os::unix::fs::symlink("src/main.rs", repo.join("inside")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", repo.join("outside")).unwrap();
    let archive = archive_of(&here, &id).await;

    let read = std::io::Cursor::new(archive.clone());
    let imported = there.projects.import(read, ImportLimits::default()).await.unwrap();
    assert_eq!(imported.project.project_id, id);
    assert_eq!(imported.left_out, ["repo/outside: the link leads outside"]);
    let tree = there.tree(&imported.project).await;
    assert_eq!(get(&tree, "/workspace/src/main.rs").await, "fn main() {}");
    assert_eq!(get(&tree, "/workspace/inside").await, "fn main() {}");
    assert_eq!(get(&tree, "/memories/hot/a/b").await, "warm");
    assert_eq!(get(&tree, "/memories/persistent/c").await, "cold");
    let terminal = there.store.thread(&thread).await.unwrap().unwrap().terminal_id;
    assert_eq!(there.store.terminal_state(&terminal, None).await.unwrap().cwd, "/somewhere");

    // A second import gets other ids and the same content.
    let read = std::io::Cursor::new(archive);
    let second = there.projects.import(read, ImportLimits::default()).await.unwrap();
    assert_ne!(second.project.project_id, id);
    assert_eq!(get(&there.tree(&second.project).await, "/memories/hot/a/b").await, "warm");
    assert_eq!(second.project.statistics.commands, 1);
}

async fn archive_of(world: &World, id: &ProjectId) -> Vec<u8> {
    #[derive(Clone, Default)]
    struct Out(Arc<std::sync::Mutex<Vec<u8>>>);
    impl std::io::Write for Out {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let out = Out::default();
    world.projects.export(id, out.clone()).await.unwrap();
    out.0.lock().unwrap().clone()
}

/// Imports an archive with the rows of an empty project and the entries that `make` adds. Returns the result as
/// text.
async fn import_with(world: &World, make: impl Fn(&mut tar::Builder<Vec<u8>>)) -> String {
    import_within(world, ImportLimits { bytes: 1 << 20, entries: 100 }, make).await
}

async fn import_within(
    world: &World,
    limits: ImportLimits,
    make: impl Fn(&mut tar::Builder<Vec<u8>>),
) -> String {
    let project = world.create("web").await;
    let good = archive_of(world, &project.project_id).await;
    world.projects.delete(&project.project_id, "test").await.unwrap();
    world.projects.purge(&project.project_id).await.unwrap();
    let plain = zstd::stream::decode_all(&*good).unwrap();
    let mut tar = tar::Builder::new(Vec::new());
    for entry in tar::Archive::new(&*plain).entries().unwrap() {
        let entry = entry.unwrap();
        let mut header = entry.header().clone();
        let path = entry.path().unwrap().into_owned();
        tar.append_data(&mut header, path, entry).unwrap();
    }
    make(&mut tar);
    let archive = zstd::stream::encode_all(&*tar.into_inner().unwrap(), 3).unwrap();
    match world.projects.import(std::io::Cursor::new(archive), limits).await {
        Ok(imported) => format!("imported {} entries", imported.entries),
        Err(error) => error.to_string(),
    }
}

/// Appends an entry whose name `tar` would refuse to write.
fn raw(tar: &mut tar::Builder<Vec<u8>>, name: &str, kind: tar::EntryType, link: &str) {
    let mut header = tar::Header::new_gnu();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_size(0);
    header.set_mode(0o644);
    header.set_cksum();
    tar.append(&header, std::io::empty()).unwrap();
}

/// Tries archives that are truncated, or in which one bit is changed. Some bits of a compressed file have no
/// meaning; archives that still decompress to the same content are skipped.
async fn damaged_archives_are_refused(world: &World) {
    let project = world.create("cut").await;
    put(&world.tree(&project).await, "/workspace/f", "content").await;
    let good = archive_of(world, &project.project_id).await;
    let content = zstd::decode_all(&*good).unwrap();
    let before = world.projects.list(Default::default(), PageRequest::first(100)).await.unwrap();
    for at in (0..good.len()).step_by(good.len() / 40 + 1).chain([good.len() - 1]) {
        let mut changed = good.clone();
        changed[at] ^= 0x10;
        for archive in [good[..at].to_vec(), changed] {
            if zstd::decode_all(&*archive).is_ok_and(|unpacked| unpacked == content) {
                continue;
            }
            let read = std::io::Cursor::new(archive);
            world.projects.import(read, ImportLimits::default()).await.unwrap_err();
        }
    }
    let after = world.projects.list(Default::default(), PageRequest::first(100)).await.unwrap();
    assert_eq!(after.items.len(), before.items.len());
}

#[tokio::test]
async fn malicious_archives_are_refused_and_leave_nothing_behind() {
    use tar::EntryType as Type;
    let world = World::new().await;
    let cases: [(&str, Type, &str, &str); 9] = [
        ("repo/../../../evil", Type::Regular, "", "it contains `..`"),
        ("/etc/evil", Type::Regular, "", "is an absolute path"),
        ("repo/link", Type::Symlink, "/etc/passwd", "leads outside"),
        ("repo/link", Type::Symlink, "../../x", "leads outside"),
        ("repo/hard", Type::Link, "repo/other", "has the unsupported type Link"),
        ("repo/device", Type::Char, "", "has the unsupported type Char"),
        ("repo/fifo", Type::Fifo, "", "has the unsupported type Fifo"),
        ("project.json", Type::Regular, "", "is not part of a project"),
        ("tmp/x", Type::Regular, "", "is not part of a project"),
    ];
    for (name, kind, link, expected) in cases {
        let result = import_with(&world, |tar| raw(tar, name, kind, link)).await;
        assert!(result.contains(expected), "{name}: {result}");
    }
    let result = import_with(&world, |tar| {
        raw(tar, "repo/d", Type::Symlink, "other");
        raw(tar, "repo/d/f", Type::Regular, "");
    })
    .await;
    assert!(result.contains("twice"), "{result}");
    let result = import_with(&world, |tar| {
        let mut header = tar::Header::new_gnu();
        header.set_size(8 << 20);
        header.set_mode(0o644);
        let zeros = std::io::Read::take(std::io::repeat(0), 8 << 20);
        tar.append_data(&mut header, "repo/bomb", zeros).unwrap();
    })
    .await;
    assert!(result.contains("exceeds the size limit"), "{result}");
    let result = import_with(&world, |tar| {
        for number in 0..200 {
            raw(tar, &format!("repo/{number}"), Type::Regular, "");
        }
    })
    .await;
    assert!(result.contains("more than 100 entries"), "{result}");
    // A link that stays inside by itself, and leads outside through another link.
    let result = import_with(&world, |tar| {
        raw(tar, "repo/a/b/c/up", Type::Symlink, "../../..");
        raw(tar, "repo/a/b/c/up/out", Type::Symlink, "../../../../x");
    })
    .await;
    assert!(result.contains("twice"), "{result}");
    for name in ["rows.json", "hot/memories/hot/k", "repo/f"] {
        let result = import_with(&world, |tar| {
            for _ in 0..2 {
                let mut header = tar::Header::new_gnu();
                header.set_size(0);
                header.set_mode(0o644);
                tar.append_data(&mut header, name, std::io::empty()).unwrap();
            }
        })
        .await;
        assert!(result.contains("twice"), "{name}: {result}");
    }
    let result = import_with(&world, |_| {}).await;
    assert!(result.starts_with("imported "), "{result}");
    damaged_archives_are_refused(&world).await;
    for entry in std::fs::read_dir(world.home.path().join("workspaces")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.starts_with(".import-"), "{name} was left behind");
    }
    // Rows that the store cannot read again are refused as a whole.
    let project = world.create("bad").await;
    let bundle = world.store.bundle(&project.project_id).await.unwrap();
    let mut text = serde_json::to_value(&bundle).unwrap();
    text["tables"]["threads"] = serde_json::json!([{"thread_id": "a/b", "terminal_id": "x",
        "policy": "not json", "env": "{}", "labels": "{}", "created_at": 0, "updated_at": 0,
        "revision": 0, "lease_id": "l"}]);
    let bundle = serde_json::from_value(text).unwrap();
    let ids = store::Ids::Fresh("evil-00000000".parse().unwrap());
    let refused = world.store.add_bundle(bundle, ids, 100, wall(&world.now)).await;
    assert!(refused.is_err());
    assert!(world.projects.project(&"evil-00000000".parse().unwrap()).await.is_err());
}

/// Appends an entry of `size` zeros.
fn zeros(tar: &mut tar::Builder<Vec<u8>>, name: &str, kind: tar::EntryType, size: u64) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o644);
    tar.append_data(&mut header, name, std::io::Read::take(std::io::repeat(0), size)).unwrap();
}

#[tokio::test]
async fn an_import_whose_memories_or_headers_are_too_large_is_refused() {
    use tar::EntryType as Type;
    let world = World::new().await;
    let limits = ImportLimits::default();
    let result = import_within(&world, limits, |tar| {
        zeros(tar, "hot/memories/hot/large", Type::Regular, (4 << 20) + 1);
    });
    assert_eq!(result.await, "\"memories/hot/large\" exceeds the limit of 4194304 bytes");
    let result = import_within(&world, limits, |tar| {
        for number in 0..16 {
            zeros(tar, &format!("hot/memories/hot/{number}"), Type::Regular, 4 << 20);
        }
    });
    assert_eq!(result.await, "the limit of 67108864 bytes of memories is reached");
    let result = import_within(&world, limits, |tar| {
        for number in 0..10_001 {
            zeros(tar, &format!("hot/memories/hot/{number}"), Type::Regular, 0);
        }
    });
    assert_eq!(result.await, "the limit of 10000 memories is reached");
    let result = import_within(&world, limits, |tar| {
        zeros(tar, "././@LongLink", Type::GNULongName, 1 << 20);
        zeros(tar, "repo/x", Type::Regular, 0);
    });
    assert_eq!(result.await, "the archive is refused: a header is too large");
}

#[tokio::test]
async fn a_refusal_shows_names_of_the_archive_and_no_path_of_the_server() {
    use tar::EntryType as Type;
    let world = World::new().await;
    let check = async |make: fn(&mut tar::Builder<Vec<u8>>), expected: &str| {
        let result = import_with(&world, make).await;
        assert_eq!(result, format!("the archive is refused: {expected}"));
    };
    let twice = |tar: &mut tar::Builder<Vec<u8>>| {
        raw(tar, "repo/d", Type::Symlink, "other");
        raw(tar, "repo/d", Type::Symlink, "other");
    };
    check(twice, "\"repo/d\" appears twice").await;
    let below_a_file = |tar: &mut tar::Builder<Vec<u8>>| {
        raw(tar, "repo/f", Type::Regular, "");
        raw(tar, "repo/f/g/h", Type::Regular, "");
    };
    check(below_a_file, "\"repo/f/g/h\" is both a file and a directory").await;
    let both = |tar: &mut tar::Builder<Vec<u8>>| {
        raw(tar, "repo/f", Type::Regular, "");
        raw(tar, "repo/f", Type::Directory, "");
    };
    check(both, "\"repo/f\" appears twice").await;
}
