//! Pulls from a real registry, and what is left of one that was killed.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
};

use images::{
    Collected, ContentDigest, ExistingImage, ImageReference, ImageStore, ImportedImages, PullError,
    PullStage, PulledImage,
};
use support::{LOGIN, Registry, architecture, gzip, layer, names, noise, options, store, wait_for};

async fn pull(store: &ImageStore, image: &ImageReference) -> Result<PulledImage, PullError> {
    store.pull(image, &|_| {}).await
}

fn read(store: &ImageStore, image: &PulledImage, file: &str) -> String {
    let root = store.root(&image.id).expect("a root");
    fs::read_to_string(root.join(file)).unwrap()
}

/// Nothing but empty directories and the lock.
fn is_empty(dir: &Path) -> bool {
    ["layers", "roots", "names"].iter().all(|kind| names(dir, kind).is_empty())
}

#[tokio::test]
async fn an_image_is_pulled_unpacked_listed_and_removed() {
    let Some(registry) = Registry::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let below = layer(&[("etc/name", b"below"), ("etc/kept", b"kept")]);
    let above = layer(&[("etc/name", b"above"), ("etc/.wh.kept", b"")]);
    let manifest = registry.push("a/first", "1", &[below.clone(), above]).await;
    let reference = registry.reference("a/first:1");
    assert_eq!(store.find(&reference).unwrap(), None);
    let stages = Mutex::new(Vec::new());
    let image = store.pull(&reference, &|stage| stages.lock().unwrap().push(stage)).await.unwrap();
    assert_eq!(image.manifest, manifest);
    assert_eq!(read(&store, &image, "etc/name"), "above");
    assert!(!store.root(&image.id).unwrap().join("etc/kept").exists());
    let stages = stages.into_inner().unwrap();
    assert!(matches!(stages[0], PullStage::Fetching { total_bytes, .. } if total_bytes > 0));
    assert_eq!(stages.last(), Some(&PullStage::Unpacking { total_bytes: image.bytes() }));
    assert_eq!(store.find(&reference).unwrap().as_ref(), Some(&image));

    // A layer that the store has is not fetched again: the registry has lost it.
    let other = layer(&[("other", b"other")]);
    registry.push("a/second", "latest", &[below.clone(), other]).await;
    fs::remove_file(registry.blob_file(&ContentDigest::of(&gzip(&below)))).unwrap();
    let second = pull(&store, &registry.reference("a/second")).await.unwrap();
    assert_eq!(read(&store, &second, "etc/name"), "below");
    let listed = store.list().unwrap();
    let references: Vec<_> = listed.iter().map(|image| image.reference.clone()).collect();
    let address = &registry.address;
    assert_eq!(references, [format!("{address}/a/first:1"), format!("{address}/a/second:latest")]);
    assert_eq!(names(dir.path(), "layers").len(), 3);

    assert!(store.remove(&reference).unwrap());
    assert!(!store.remove(&reference).unwrap());
    let removed = store.collect().unwrap().unwrap();
    assert_eq!((removed.layers, removed.roots), (1, 1), "the shared layer is kept: {removed:?}");
    assert_eq!(read(&store, &second, "etc/name"), "below");
    store.remove(&registry.reference("a/second")).unwrap();
    store.collect().unwrap().unwrap();
    assert!(is_empty(dir.path()));
}

#[tokio::test]
async fn a_moved_tag_leaves_the_root_that_is_in_use() {
    let Some(registry) = Registry::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let used: Arc<Mutex<BTreeSet<ContentDigest>>> = Arc::default();
    let in_use = used.clone();
    let in_use = move || Ok(in_use.lock().unwrap().clone());
    let store = ImageStore::new(options(dir.path()), Arc::new(in_use));
    let reference = registry.reference("moving:latest");
    registry.push("moving", "latest", &[layer(&[("version", b"1")])]).await;
    let first = pull(&store, &reference).await.unwrap();
    used.lock().unwrap().insert(first.id.clone());
    registry.push("moving", "latest", &[layer(&[("version", b"2")])]).await;
    let second = pull(&store, &reference).await.unwrap();
    assert_eq!(read(&store, &first, "version"), "1");
    assert_eq!(read(&store, &second, "version"), "2");
    used.lock().unwrap().clear();
    // A guard keeps a root until its use is recorded.
    let guard = store.guard().await.unwrap();
    assert_eq!(store.collect().unwrap(), None);
    drop(guard);
    assert_eq!(store.collect().unwrap(), Some(Collected { roots: 1, ..Collected::default() }));
    assert!(store.root(&first.id).is_none());
    assert_eq!(read(&store, &second, "version"), "2");
    // By its digest, the first version can be pulled again.
    let pinned = registry.reference(&format!("moving@{}", first.manifest));
    assert_eq!(pull(&store, &pinned).await.unwrap().id, first.id);
}

#[tokio::test]
async fn the_variant_for_this_machine_is_pulled() {
    let Some(registry) = Registry::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let other = registry.push("multi", "other", &[layer(&[("file", b"other")])]).await;
    let ours = registry.push("multi", "ours", &[layer(&[("file", b"ours")])]).await;
    let size = |digest| fs::metadata(registry.blob_file(digest)).unwrap().len() as usize;
    let variants = [("mips64le", &other, size(&other)), (architecture(), &ours, size(&ours))];
    registry.push_index("multi", "latest", &variants).await;
    registry.push_index("multi", "foreign", &variants[..1]).await;
    let image = pull(&store, &registry.reference("multi")).await.unwrap();
    assert_eq!(read(&store, &image, "file"), "ours");
    let error = pull(&store, &registry.reference("multi:foreign")).await.unwrap_err();
    assert!(error.to_string().contains("no variant for linux/"), "{error}");
}

#[tokio::test]
async fn tampered_missing_and_hostile_images_are_refused() {
    let Some(registry) = Registry::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let refused = async |name: &str, reason: &str| {
        let error = pull(&store, &registry.reference(name)).await.unwrap_err();
        assert!(error.is_refusal(), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(store.list().unwrap(), []);
        store.collect().unwrap().unwrap();
        assert!(is_empty(dir.path()), "{name} left something");
    };
    refused("absent:1", "does not exist").await;
    registry.push("present", "1", &[layer(&[("file", b"")])]).await;
    refused("present:2", "check its name and tag").await;
    // The registry's disk returns another layer of the same size.
    let content = layer(&[("file", &noise(100_000, 1))]);
    registry.push("tampered", "1", std::slice::from_ref(&content)).await;
    let file = registry.blob_file(&ContentDigest::of(&gzip(&content)));
    let mut bytes = fs::read(&file).unwrap();
    bytes[50_000] ^= 1;
    fs::write(&file, bytes).unwrap();
    refused("tampered:1", "instead of sha256:").await;
    // The configuration promises another archive.
    let lie = [(ContentDigest::of(b"other"), gzip(&content[..content.len() - 512]))];
    registry.push_packed("lie", "1", &lie).await;
    refused("lie:1", "a layer unpacks to").await;
    let archive = hostile_archive();
    registry.push("hostile", "1", &[archive]).await;
    refused("hostile:1", "leads outside").await;
    registry.push_packed("text", "1", &[(ContentDigest::of(b"text"), b"text".to_vec())]).await;
    refused("text:1", "is refused").await;
}

fn hostile_archive() -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    let path = b"../../../escaped";
    header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path);
    header.set_size(0);
    header.set_mode(0o644);
    header.set_cksum();
    archive.append(&header, &b""[..]).unwrap();
    archive.into_inner().unwrap()
}

#[tokio::test]
async fn layers_may_be_zstd_or_uncompressed() {
    let Some(registry) = Registry::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let (one, two) = (layer(&[("one", b"1")]), layer(&[("two", b"2")]));
    let packed = zstd::encode_all(one.as_slice(), 1).unwrap();
    let layers = [(ContentDigest::of(&one), packed), (ContentDigest::of(&two), two)];
    registry.push_packed("mixed", "1", &layers).await;
    let image = pull(&store, &registry.reference("mixed:1")).await.unwrap();
    assert_eq!(read(&store, &image, "one") + &read(&store, &image, "two"), "12");
}

#[tokio::test]
async fn an_interrupted_layer_is_continued() {
    let Some(registry) = Registry::start() else { return };
    let content = layer(&[("file", &noise(3_000_000, 7))]);
    let packed = gzip(&content);
    registry.push("resumed", "1", std::slice::from_ref(&content)).await;
    let digest = ContentDigest::of(&packed);
    let half = packed.len() / 2;
    for (what, part) in [
        ("the first half", packed[..half].to_vec()),
        ("all bytes, not yet verified", packed.clone()),
        ("damaged bytes", vec![7; half]),
        ("too many bytes", vec![7; packed.len() + 1]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        drop(store.guard().await.unwrap());
        let layers = dir.path().join("pulled-images/layers");
        fs::write(layers.join(format!("{}.part", digest.hex())), part).unwrap();
        let image = pull(&store, &registry.reference("resumed:1")).await;
        assert!(store.root(&image.expect(what).id).is_some());
        assert_eq!(names(dir.path(), "layers"), [digest.hex()], "{what}");
    }
    // The registry has lost the first half, and is not asked for it.
    let file = registry.blob_file(&digest);
    let mut damaged = packed.clone();
    damaged[..half].fill(0);
    fs::write(file, damaged).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    drop(store.guard().await.unwrap());
    let part = dir.path().join("pulled-images/layers").join(format!("{}.part", digest.hex()));
    fs::write(part, &packed[..half]).unwrap();
    pull(&store, &registry.reference("resumed:1")).await.unwrap();
}

#[tokio::test]
async fn a_password_is_sent_where_it_is_wanted() {
    let Some(registry) = Registry::with_password() else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    registry.push("private", "1", &[layer(&[("file", b"secret")])]).await;
    let reference = registry.reference("private:1");
    let denied = pull(&store, &reference).await.unwrap_err();
    assert!(matches!(denied, PullError::Denied { .. }), "{denied}");
    let credentials = |auth: &str| {
        let text = format!("{{\"auths\": {{\"{}\": {{\"auth\": \"{auth}\"}}}}}}", registry.address);
        fs::write(dir.path().join("credentials.json"), text).unwrap();
    };
    credentials("cmVhZGVyOndyb25n");
    let denied = pull(&store, &reference).await.unwrap_err();
    assert!(matches!(denied, PullError::WrongCredentials { .. }), "{denied}");
    assert!(denied.is_refusal() && denied.to_string().contains("image.credentials"), "{denied}");
    credentials(LOGIN.strip_prefix("Basic ").unwrap());
    let image = pull(&store, &reference).await.unwrap();
    assert_eq!(read(&store, &image, "file"), "secret");
}

#[tokio::test]
async fn a_registry_that_is_down_is_no_refusal() {
    let Some(registry) = Registry::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (store, reference) = (store(dir.path()), registry.reference("any:1"));
    drop(registry);
    let error = pull(&store, &reference).await.unwrap_err();
    assert!(matches!(error, PullError::Unavailable { .. }) && !error.is_refusal(), "{error}");
}

/// Answers every request with a token; returns its URL and the heads of the requests.
fn token_server() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/token", listener.local_addr().unwrap());
    let (heads, received) = mpsc::channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<_> =
                lines.map_while(Result::ok).take_while(|it| !it.is_empty()).collect();
            let body = "{\"token\": \"given\"}";
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
            let _ = stream.write_all(answer.as_bytes());
            if heads.send(head.join("\n")).is_err() {
                return;
            }
        }
    });
    (url, received)
}

#[tokio::test]
async fn a_token_is_fetched_where_the_registry_says() {
    let (realm, requests) = token_server();
    let Some(registry) = Registry::with_tokens_of(&realm) else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    registry.push("a/tokens", "1", &[layer(&[("file", b"text")])]).await;
    let text = format!("{{\"auths\": {{\"{}\": {{\"auth\": \"YTpi\"}}}}}}", registry.address);
    fs::write(dir.path().join("credentials.json"), text).unwrap();
    let image = pull(&store, &registry.reference("a/tokens:1")).await.unwrap();
    assert_eq!(read(&store, &image, "file"), "text");
    let head = requests.try_recv().unwrap();
    let first = "GET /token?scope=repository%3Aa%2Ftokens%3Apull&service=test-service HTTP/1.1";
    assert!(head.starts_with(first), "{head}");
    assert!(head.contains("authorization: Basic YTpi"), "{head}");
    assert!(requests.try_recv().is_err(), "one token is enough for all requests");
    // A token server elsewhere, without TLS, gets no password.
    let Some(registry) = Registry::with_tokens_of("http://192.0.2.1/token") else { return };
    registry.push("a", "1", &[layer(&[])]).await;
    let error = pull(&store, &registry.reference("a:1")).await.unwrap_err();
    assert!(error.to_string().contains("192.0.2.1, without TLS"), "{error}");
}

#[tokio::test]
async fn two_pulls_of_one_image_share_their_work() {
    let Some(registry) = Registry::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    registry.push("same", "1", &[layer(&[("file", &noise(2_000_000, 3))])]).await;
    let reference = registry.reference("same:1");
    // As if they were two processes.
    let (one, two) = (store(dir.path()), store(dir.path()));
    let (first, second) = tokio::join!(pull(&one, &reference), pull(&two, &reference));
    assert_eq!(first.unwrap(), second.unwrap());
    one.collect().unwrap().unwrap();
    assert_eq!(names(dir.path(), "layers").len(), 1);
    assert_eq!(names(dir.path(), "roots").len(), 1);
}

#[tokio::test]
async fn unreferenced_layers_are_kept_up_to_a_limit() {
    let Some(registry) = Registry::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path());
    options.max_unreferenced_bytes = 2_500_000;
    let store = ImageStore::new(options, Arc::new(|| Ok(BTreeSet::new())));
    let mut newest = Vec::new();
    for seed in 1..=4 {
        let content = layer(&[("file", &noise(1_000_000, seed))]);
        let name = format!("image{seed}");
        registry.push(&name, "1", std::slice::from_ref(&content)).await;
        pull(&store, &registry.reference(&format!("{name}:1"))).await.unwrap();
        store.remove(&registry.reference(&format!("{name}:1"))).unwrap();
        store.collect().unwrap().unwrap();
        newest.push(ContentDigest::of(&gzip(&content)).hex().to_owned());
    }
    let mut expected = newest.split_off(2);
    expected.sort();
    assert_eq!(names(dir.path(), "layers"), expected);
    assert!(names(dir.path(), "roots").is_empty());
}

#[tokio::test]
async fn the_store_stays_below_its_limit() {
    let Some(registry) = Registry::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path());
    // Each image needs one megabyte for its layer and one for its files.
    options.max_store_bytes = 5_000_000;
    let in_use = Arc::new(Mutex::new(BTreeSet::new()));
    let uses = in_use.clone();
    let store = ImageStore::new(options, Arc::new(move || Ok(uses.lock().unwrap().clone())));
    let mut references = Vec::new();
    for seed in 1..=4 {
        let name = format!("image{seed}");
        registry.push(&name, "1", &[layer(&[("file", &noise(1_000_000, seed))])]).await;
        references.push(registry.reference(&format!("{name}:1")));
    }
    let [first, second, third, fourth] = references.as_slice() else { panic!("four images") };
    let used = pull(&store, first).await.unwrap();
    in_use.lock().unwrap().insert(used.id);
    pull(&store, second).await.unwrap();
    let found = || -> Vec<String> {
        store.list().unwrap().into_iter().map(|image| image.reference).collect()
    };
    assert_eq!(found(), [first.to_string(), second.to_string()]);
    // The image that a sandbox uses is kept, although it is the older one.
    let used = pull(&store, third).await.unwrap();
    assert_eq!(found(), [first.to_string(), third.to_string()]);
    assert_eq!(names(dir.path(), "roots").len(), 2);
    assert_eq!(names(dir.path(), "layers").len(), 2);
    in_use.lock().unwrap().insert(used.id);
    let refused = pull(&store, fourth).await;
    assert!(matches!(refused, Err(PullError::Full { .. })), "{refused:?}");
    assert_eq!(found(), [first.to_string(), third.to_string()]);
}

const CHILD_DIR: &str = "STEAD_TEST_IMAGES_DIR";
const CHILD_IMAGE: &str = "STEAD_TEST_IMAGES_REFERENCE";
const CHILD_SOURCE: &str = "STEAD_TEST_IMAGES_SOURCE";

/// Not a test of its own: the process that the tests below kill.
#[tokio::test]
async fn child_process() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    if let Some(source) = std::env::var_os(CHILD_SOURCE) {
        return import(Path::new(&dir), Path::new(&source)).await;
    }
    let store = store(Path::new(&dir));
    match std::env::var(CHILD_IMAGE) {
        Ok(image) => drop(pull(&store, &image.parse().unwrap()).await.unwrap()),
        Err(_) => drop(store.collect().unwrap()),
    }
}

/// Imports a directory as the image `app`, in place of the one that may exist.
async fn import(home: &Path, source: &Path) {
    let images = ImportedImages::new(home);
    images.import("app", source, ExistingImage::Replace, 1 << 30).await.unwrap();
}

/// The work of the process that is killed.
enum ChildTask<'a> {
    Pull(&'a ImageReference),
    Import(&'a Path),
    Collect,
}

/// Starts a process, and kills it when a condition holds or it has ended.
fn killed_when(dir: &Path, task: &ChildTask<'_>, mut holds: impl FnMut() -> bool) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_process"]).env(CHILD_DIR, dir);
    match task {
        ChildTask::Pull(image) => drop(command.env(CHILD_IMAGE, image.to_string())),
        ChildTask::Import(source) => drop(command.env(CHILD_SOURCE, source)),
        ChildTask::Collect => {}
    }
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("process to be killed", || {
        let has_ended = child.try_wait().unwrap().is_some();
        if has_ended || holds() { Ok(()) } else { Err(format!("{:?}", names(dir, "layers"))) }
    });
    let _ = child.kill();
    child.wait().unwrap();
}

/// The moment at which a test kills the process.
type Condition = Box<dyn Fn(&Path) -> bool>;

/// The image of the tests that kill: one large file and many small ones.
fn large_layers() -> Vec<Vec<u8>> {
    let names: Vec<String> =
        (0..400).map(|number| format!("dir{}/{number}", number % 20)).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), name.as_bytes())).collect();
    vec![layer(&[("large", &noise(12_000_000, 11))]), layer(&files)]
}

fn check_root(store: &ImageStore, image: &PulledImage) {
    let root = store.root(&image.id).expect("a root");
    assert_eq!(fs::metadata(root.join("large")).unwrap().len(), 12_000_000);
    for number in 0..400 {
        let name = format!("dir{}/{number}", number % 20);
        assert_eq!(fs::read_to_string(root.join(&name)).unwrap(), name);
    }
}

#[tokio::test]
async fn a_killed_pull_leaves_nothing_half() {
    let Some(registry) = Registry::start() else { return };
    registry.push("large", "1", &large_layers()).await;
    let reference = registry.reference("large:1");
    let has_unfinished_root = |dir: &Path| names(dir, "roots").iter().any(|it| it.starts_with('.'));
    let part_bytes = |dir: &Path| -> u64 {
        let layers = dir.join("pulled-images/layers");
        let listed = fs::read_dir(layers).into_iter().flatten().flatten();
        listed.filter_map(|it| it.metadata().ok()).map(|it| it.len()).sum()
    };
    let conditions: Vec<(&str, Condition)> = vec![
        ("the lock exists", Box::new(|dir| dir.join("pulled-images/lock").exists())),
        ("a layer has begun", Box::new(move |dir| part_bytes(dir) > 0)),
        ("a third was fetched", Box::new(move |dir| part_bytes(dir) > 4_000_000)),
        ("two thirds were fetched", Box::new(move |dir| part_bytes(dir) > 8_000_000)),
        ("unpacking has begun", Box::new(move |dir| has_unfinished_root(dir))),
        ("a file is unpacked", Box::new(move |dir| unpacked(dir, "large"))),
        ("the second layer is unpacked", Box::new(move |dir| unpacked(dir, "dir10"))),
        (
            "the root is complete",
            Box::new(|dir| names(dir, "roots").iter().any(|it| !it.starts_with('.'))),
        ),
        ("it is recorded", Box::new(|dir| !names(dir, "names").is_empty())),
    ];
    for (what, holds) in conditions {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        killed_when(dir.path(), &ChildTask::Pull(&reference), || holds(dir.path()));
        // Every image in the list is complete.
        for image in store.list().unwrap() {
            check_root(&store, &image);
        }
        let image = pull(&store, &reference).await.expect(what);
        check_root(&store, &image);
        let layers = names(dir.path(), "layers");
        assert!(layers.len() == 2 && layers.iter().all(|it| it.len() == 64), "{what}: {layers:?}");
        assert_eq!(names(dir.path(), "roots"), [image.id.hex()], "{what}");
        store.remove(&reference).unwrap();
        store.collect().unwrap().unwrap();
        assert!(is_empty(dir.path()), "{what}");
    }
}

/// Whether a file is in an unfinished root.
fn unpacked(dir: &Path, file: &str) -> bool {
    let roots = dir.join("pulled-images/roots");
    let mut unfinished = names(dir, "roots").into_iter().filter(|it| it.starts_with('.'));
    unfinished.any(|name| roots.join(name).join("rootfs").join(file).exists())
}

#[tokio::test]
async fn a_killed_collection_loses_nothing_that_is_needed() {
    let Some(registry) = Registry::start() else { return };
    registry.push("large", "1", &large_layers()).await;
    let reference = registry.reference("large:1");
    registry.push("small", "1", &[layer(&[("file", b"kept")])]).await;
    for what in ["the root is being removed", "a layer is removed"] {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        pull(&store, &reference).await.unwrap();
        let small = pull(&store, &registry.reference("small:1")).await.unwrap();
        store.remove(&reference).unwrap();
        killed_when(dir.path(), &ChildTask::Collect, || match what {
            "a layer is removed" => names(dir.path(), "layers").len() < 3,
            _ => names(dir.path(), "roots").iter().any(|it| it.starts_with('.')),
        });
        assert_eq!(store.list().unwrap(), std::slice::from_ref(&small));
        assert_eq!(read(&store, &small, "file"), "kept");
        // The image can be pulled again although half of it may be gone.
        let image = pull(&store, &reference).await.unwrap();
        check_root(&store, &image);
        store.remove(&reference).unwrap();
        store.collect().unwrap().unwrap();
        assert_eq!(names(dir.path(), "roots"), [small.id.hex()], "{what}");
        assert_eq!(names(dir.path(), "layers").len(), 1, "{what}");
    }
}

/// The number of small files of the image that a killed process imports.
const SMALL_FILES: u32 = 400;

/// Whether the image `app` of a home has all its files.
fn is_whole(home: &Path) -> bool {
    let root = home.join("images/app/rootfs");
    let large = fs::metadata(root.join("bin/large")).map_or(0, |found| found.len());
    let text = |number: u32| fs::read_to_string(root.join(number.to_string()));
    large == 12_000_000
        && (0..SMALL_FILES).all(|number| text(number).is_ok_and(|it| it == number.to_string()))
}

/// The unfinished imports of a home.
fn unfinished_imports(home: &Path) -> Vec<String> {
    let entries = fs::read_dir(home.join("images")).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name.starts_with('.') && name != ".lock").collect()
}

/// Whether an unfinished import has a file.
fn is_copied(home: &Path, file: &str) -> bool {
    let has = |name: &String| home.join("images").join(name).join("rootfs").join(file).exists();
    unfinished_imports(home).iter().any(has)
}

#[tokio::test]
async fn a_killed_import_leaves_nothing_half() {
    let source = tempfile::tempdir().unwrap();
    fs::create_dir(source.path().join("bin")).unwrap();
    fs::write(source.path().join("bin/large"), noise(12_000_000, 5)).unwrap();
    for number in 0..SMALL_FILES {
        fs::write(source.path().join(number.to_string()), number.to_string()).unwrap();
    }
    let conditions: Vec<(&str, Condition)> = vec![
        ("the lock exists", Box::new(|home| home.join("images/.lock").exists())),
        ("the copy has begun", Box::new(|home| is_copied(home, "."))),
        ("a large file is copied", Box::new(|home| is_copied(home, "bin/large"))),
        ("a small file is copied", Box::new(|home| is_copied(home, "7"))),
        ("it has its name", Box::new(|home| home.join("images/app").exists())),
    ];
    for (what, holds) in conditions {
        // The first import of this name, and one that replaces an image.
        for earlier in [false, true] {
            let home = tempfile::tempdir().unwrap();
            if earlier {
                import(home.path(), source.path()).await;
            }
            killed_when(home.path(), &ChildTask::Import(source.path()), || holds(home.path()));
            let names = ImportedImages::new(home.path()).names().unwrap();
            let is_absent = names.is_empty() && !earlier;
            assert!(is_absent || is_whole(home.path()), "{what}: {names:?}");
            import(home.path(), source.path()).await;
            assert!(is_whole(home.path()), "{what}");
            let left = unfinished_imports(home.path());
            assert!(left.is_empty(), "{what}: {left:?}");
        }
    }
}
