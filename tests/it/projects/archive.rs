//! A project goes to another machine, and no archive does harm.

use serde_json::{Value, json};

use super::{World, world};
use harness::{Client, Person, wait_for};

impl World {
    fn export(&self) -> Vec<u8> {
        let target = format!("/api/projects/{}/export", self.project);
        self.client.get(&target).expect_status(200).body.clone()
    }
}

fn import(client: &Client, archive: &[u8]) -> harness::Answer {
    client.request("POST", "/api/projects/import").body(archive).send()
}

#[test]
fn the_shells_of_an_imported_project_start_with_the_state_they_had() {
    let here = world();
    let exec = |client: &Client, thread: &str, command: &str| {
        let target = format!("/api/threads/{thread}/exec");
        client.post(&target, json!({"command": command})).expect(200)
    };
    exec(&here.client, "t", "mkdir -p src; cd src; export COLOUR=blue; n=7; f() { echo $n; }");
    exec(&here.client, "t", "echo done > result");
    here.write("/memories/hot/plan", b"warm").expect(201);
    let archive = here.export();

    let there = world();
    let arrived = import(&there.client, &archive).expect(201);
    assert_eq!(arrived["project"]["project_id"], here.project.as_str());
    assert_eq!(arrived["project"]["statistics"]["commands"], 2);
    // The name `t` is taken there: the thread came under another.
    let thread = arrived["threads"][0].as_str().unwrap().to_owned();
    assert_ne!(thread, "t");
    let ran = exec(&there.client, &thread, "f; echo $COLOUR; basename $PWD; cat result");
    assert_eq!(ran["stdout"], "7\nblue\nsrc\ndone\n", "{ran}");
    let where_it_is = exec(&there.client, &thread, "pwd")["stdout"].as_str().unwrap().to_owned();
    let expected = there.home.path().join("workspaces").join(&here.project).join("repo/src");
    assert_eq!(where_it_is.trim_end(), expected.to_str().unwrap());
    let target = format!("/api/projects/{}/memories/hot/plan", here.project);
    assert_eq!(there.client.get(&target).expect_status(200).text(), "warm");
    let history = there.client.get(&format!("/api/threads/{thread}/terminal")).expect(200);
    let terminal = history["terminal_id"].as_str().unwrap();
    let commands = there.client.get(&format!("/api/terminals/{terminal}/commands")).expect(200);
    assert_eq!(commands["items"].as_array().unwrap().len(), 4);
}

#[test]
fn a_foreign_archive_is_refused_and_leaves_nothing() {
    let world = world();
    world.write("/workspace/f", b"content").expect(201);
    let good = world.export();
    let plain = zstd::stream::decode_all(&*good).unwrap();
    let with = |name: &str, kind: tar::EntryType, link: &str| {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_mode(0o644);
        header.set_cksum();
        let end = plain.len() - 1024;
        let bytes = [&plain[..end], header.as_bytes(), &plain[end..]].concat();
        zstd::stream::encode_all(&*bytes, 3).unwrap()
    };
    use tar::EntryType as Type;
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let bomb = {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(1 << 45);
        header.set_mode(0o644);
        header.set_path("repo/bomb").unwrap();
        header.set_cksum();
        tar.append(&header, std::io::empty()).unwrap();
        zstd::stream::encode_all(&*tar.into_inner().unwrap(), 3).unwrap()
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", Vec::new()),
        ("noise", vec![7; 4096]),
        ("not a tar", zstd::stream::encode_all(&[9u8; 4096][..], 3).unwrap()),
        ("cut", good[..good.len() / 2].to_vec()),
        ("without its checksum", good[..good.len() - 2].to_vec()),
        ("with a wrong checksum", flipped),
        ("upwards", with("repo/../../../evil", Type::Regular, "")),
        ("absolute", with("/etc/stead-evil", Type::Regular, "")),
        ("a link outside", with("repo/link", Type::Symlink, "/etc/passwd")),
        ("a link upwards", with("repo/link", Type::Symlink, "../../../stead.db")),
        ("a hard link", with("repo/link", Type::Link, "/etc/passwd")),
        ("a device", with("repo/device", Type::Block, "")),
        ("a FIFO", with("repo/fifo", Type::Fifo, "")),
        ("twice", with("repo/f", Type::Regular, "")),
        ("elsewhere", with("project.json", Type::Regular, "")),
        ("larger than it is", bomb),
    ];
    let listed = || {
        let mut names: Vec<_> = std::fs::read_dir(world.home.path().join("workspaces"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let before = listed();
    for (what, archive) in cases {
        let answer = import(&world.client, &archive);
        assert_eq!(answer.status, 422, "{what}: {}", answer.text());
        assert_eq!(answer.problem(422), "unprocessable", "{what}");
        assert_eq!(listed(), before, "{what} left something behind");
    }
    let count = world.client.get("/api/projects").expect(200)["items"].as_array().unwrap().len();
    assert_eq!(count, before.len());
    // A client that goes away in the middle leaves nothing either.
    let request = world.client.request("POST", "/api/projects/import");
    let stream = request.header("content-length", "1000000").body(&good).start();
    wait_for("the import to begin", || match listed().len() > before.len() {
        true => Ok(()),
        false => Err(listed()),
    });
    drop(stream);
    wait_for("the rest to be removed", || match listed() == before {
        true => Ok(()),
        false => Err(listed()),
    });
    import(&world.client, &good).expect(201);
}

#[test]
fn an_export_shows_its_progress() {
    let world = world();
    let noise: Vec<u8> =
        (0..3u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    world.write("/workspace/noise", &noise).expect(201);
    let file = world.home.path().join("p.tar.zst");
    let file = file.to_str().unwrap();
    let mut person = Person::run(&world.home, &["project", "export", &world.project, file]);
    person.sees("exported ");
    person.sees(" MiB");
    assert_eq!(person.ends(), Some(0));
    let mut person = Person::run(&world.home, &["project", "import", file]);
    person.sees("sent ");
    person.sees("web-");
    assert_eq!(person.ends(), Some(0));
    let printed = world.stead(&["project", "export", &world.project, file, "--json"]);
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(printed["bytes"], std::fs::metadata(file).unwrap().len());
}
