use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use tar::Builder;

use super::*;

type LayerBuilder = Builder<Vec<u8>>;

/// Adds an entry without the checks of `tar`, as a hostile archive would have it.
fn add(layer: &mut LayerBuilder, kind: EntryType, path: &str, link: &str, mode: u32, text: &str) {
    let mut header = Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
    header.as_gnu_mut().unwrap().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1_000_000_000);
    header.set_size(text.len() as u64);
    header.set_device_major(1).unwrap();
    header.set_device_minor(3).unwrap();
    header.set_cksum();
    layer.append(&header, text.as_bytes()).unwrap();
}

fn file(layer: &mut LayerBuilder, path: &str, text: &str) {
    add(layer, EntryType::Regular, path, "", 0o644, text);
}

fn dir(layer: &mut LayerBuilder, path: &str) {
    add(layer, EntryType::Directory, path, "", 0o755, "");
}

fn link(layer: &mut LayerBuilder, path: &str, target: &str) {
    add(layer, EntryType::Symlink, path, target, 0o777, "");
}

fn hard_link(layer: &mut LayerBuilder, path: &str, target: &str) {
    add(layer, EntryType::Link, path, target, 0o644, "");
}

/// Layers in a directory, and the root that they are unpacked into.
struct Fixture {
    dir: tempfile::TempDir,
    layers: Vec<StoredLayer>,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        fs::write(dir.path().join("outside"), "untouched").unwrap();
        Self { dir, layers: vec![] }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn layer(mut self, fill: impl FnOnce(&mut LayerBuilder)) -> Self {
        let mut layer = Builder::new(Vec::new());
        fill(&mut layer);
        let bytes = layer.into_inner().unwrap();
        self.push(ContentDigest::of(&bytes), &bytes);
        self
    }

    fn push(&mut self, diff_id: ContentDigest, bytes: &[u8]) {
        let file = self.dir.path().join(format!("layer-{}", self.layers.len()));
        fs::write(&file, bytes).unwrap();
        self.layers.push(StoredLayer { file, diff_id });
    }

    fn unpack(&self) -> io::Result<()> {
        unpack(&self.layers, &self.root(), 64 << 20).map(drop)
    }

    /// Unpacks, and returns every path with its content or kind.
    fn tree(&self) -> Vec<String> {
        self.unpack().unwrap();
        listing(&self.root())
    }

    /// Unpacks a layer that must be refused, and checks that nothing outside was touched.
    fn refused(self, reason: &str) {
        let error = self.unpack().expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
        self.check_outside();
    }

    fn check_outside(&self) {
        assert_eq!(fs::read_to_string(self.dir.path().join("outside")).unwrap(), "untouched");
        let names = fs::read_dir(self.dir.path()).unwrap().count();
        assert_eq!(names, 2 + self.layers.len(), "nothing was created outside");
    }
}

fn listing(root: &Path) -> Vec<String> {
    let (mut open, mut found) = (vec![root.to_owned()], Vec::new());
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            let kind = fs::symlink_metadata(&path).unwrap();
            if kind.is_dir() {
                found.push(format!("{name}/"));
                open.push(path);
            } else if kind.is_symlink() {
                found.push(format!("{name} -> {}", fs::read_link(path).unwrap().display()));
            } else if kind.is_file() {
                found.push(format!("{name}: {}", fs::read_to_string(path).unwrap()));
            } else {
                found.push(format!("{name}: special"));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn an_upper_layer_replaces_and_removes_what_lower_ones_have() {
    let fixture = Fixture::new()
        .layer(|lower| {
            file(lower, "etc/kept", "lower");
            file(lower, "etc/changed", "lower");
            file(lower, "etc/removed", "lower");
            file(lower, "opaque/old", "lower");
            file(lower, "opaque/deep/old", "lower");
            dir(lower, "gone/below");
            file(lower, "was-file", "lower");
            file(lower, "was-dir/content", "lower");
        })
        .layer(|upper| {
            file(upper, "etc/changed", "upper");
            file(upper, "etc/.wh.removed", "");
            file(upper, "opaque/new", "upper");
            file(upper, "opaque/.wh..wh..opq", "");
            file(upper, ".wh.gone", "");
            file(upper, "absent/.wh.absent", "");
            file(upper, ".wh..wh.plnk", "");
            dir(upper, "was-file");
            file(upper, "was-file/below", "upper");
            file(upper, "was-dir", "upper");
        });
    let expected = [
        "etc/",
        "etc/changed: upper",
        "etc/kept: lower",
        "opaque/",
        "opaque/new: upper",
        "was-dir: upper",
        "was-file/",
        "was-file/below: upper",
    ];
    assert_eq!(fixture.tree(), expected);
}

#[test]
fn links_modes_and_times_are_kept_and_devices_are_not() {
    let fixture = Fixture::new().layer(|layer| {
        add(layer, EntryType::Regular, "bin/su", "", 0o4755, "program");
        hard_link(layer, "bin/same", "bin/su");
        hard_link(layer, "bin/su", "bin/su");
        link(layer, "lib", "usr/lib");
        dir(layer, "usr/lib");
        // As in distributions whose /lib is a link: the kernel resolves it inside the root.
        file(layer, "lib/library", "code");
        link(layer, "absolute", "/usr/lib");
        file(layer, "absolute/other", "code");
        add(layer, EntryType::Directory, "tmp", "", 0o1777, "");
        add(layer, EntryType::Char, "dev/null", "", 0o666, "");
        add(layer, EntryType::Block, "dev/sda", "", 0o660, "");
        add(layer, EntryType::Fifo, "pipe", "", 0o600, "");
    });
    let expected = [
        "absolute -> /usr/lib",
        "bin/",
        "bin/same: program",
        "bin/su: program",
        "dev/",
        "lib -> usr/lib",
        "pipe: special",
        "tmp/",
        "usr/",
        "usr/lib/",
        "usr/lib/library: code",
        "usr/lib/other: code",
    ];
    assert_eq!(fixture.tree(), expected);
    let stat = |name: &str| fs::metadata(fixture.root().join(name)).unwrap();
    assert_eq!(stat("bin/su").mode() & 0o7777, 0o4755);
    assert_eq!(stat("tmp").mode() & 0o7777, 0o1777);
    assert_eq!(stat("bin/su").ino(), stat("bin/same").ino());
    assert_eq!(stat("usr/lib/library").mtime(), 1_000_000_000);
}

#[test]
fn no_path_leads_outside() {
    for path in ["../outside", "a/../../outside", "..", "/../outside"] {
        Fixture::new().layer(|layer| file(layer, path, "hostile")).refused("leads outside");
    }
    Fixture::new().layer(|layer| hard_link(layer, "a", "../outside")).refused("leads outside");
    Fixture::new().layer(|layer| hard_link(layer, "a", "/etc/passwd")).refused("leads nowhere");
    let up = "../".repeat(20);
    for target in ["..", "/..", up.as_str(), "/proc/self/root", "/proc/1/cwd"] {
        // Such a link is resolved inside of the root, as in a sandbox.
        let fixture = Fixture::new().layer(|layer| {
            dir(layer, "proc/self/root");
            dir(layer, "proc/1/cwd");
            link(layer, "link", target);
            file(layer, "link/outside", "hostile");
            file(layer, "link/.wh.outside", "");
            link(layer, "again", &format!("link/{target}"));
            file(layer, "again/layer-0", "hostile");
        });
        // A link that leads nowhere inside is refused; what matters is that nothing outside changes.
        let _ = fixture.unpack();
        fixture.check_outside();
    }
    // The last name of a path is never followed.
    let fixture = Fixture::new()
        .layer(|layer| link(layer, "file", "../outside"))
        .layer(|layer| file(layer, "file", "own"));
    assert_eq!(fixture.tree(), ["file: own"]);
    fixture.check_outside();
    // A hard link to a symbolic link is one to the link itself.
    let fixture = Fixture::new().layer(|layer| {
        link(layer, "soft", "../outside");
        hard_link(layer, "hard", "soft");
        file(layer, "hard", "own");
    });
    assert_eq!(fixture.tree(), ["hard: own", "soft -> ../outside"]);
    fixture.check_outside();
}

#[test]
fn whiteouts_do_not_lead_outside() {
    let hostile = |path: &'static str| {
        Fixture::new().layer(|layer| dir(layer, "a")).layer(move |layer| file(layer, path, ""))
    };
    hostile("a/.wh...").refused("a whiteout without a name");
    hostile("a/.wh..").refused("a whiteout without a name");
    hostile(".wh.").refused("a whiteout without a name");
    hostile("a/../../.wh.outside").refused("leads outside");
    for target in ["..", "../..", "/.."] {
        let fixture = Fixture::new().layer(|layer| link(layer, "up", target)).layer(|layer| {
            file(layer, "up/.wh.outside", "");
            file(layer, "up/.wh.layer-0", "");
            file(layer, "up/.wh..wh..opq", "");
        });
        fixture.unpack().unwrap();
        fixture.check_outside();
    }
}

#[test]
fn directories_cannot_be_nested_without_end() {
    let fixture = Fixture::new().layer(|layer| {
        // Each entry is short, and each link makes the next one deeper.
        for step in 0..40 {
            let here = if step == 0 { String::new() } else { format!("link{step}/") };
            dir(layer, &format!("{here}{}", "d/".repeat(30)));
            let target = format!("{here}{}", "d/".repeat(30));
            link(layer, &format!("link{}", step + 1), &target);
        }
    });
    fixture.refused("nested too deeply");
}

#[test]
fn loops_and_unusable_parents_are_refused() {
    let loops = Fixture::new().layer(|layer| {
        link(layer, "a", "b");
        link(layer, "b", "a");
        file(layer, "a/file", "hostile");
    });
    assert!(loops.unpack().is_err());
    let dangling = Fixture::new().layer(|layer| {
        link(layer, "a", "/nowhere");
        file(layer, "a/file", "hostile");
    });
    dangling.refused("a is not a directory");
    // Only an entry of the directory itself replaces a file.
    Fixture::new()
        .layer(|layer| file(layer, "file", "lower"))
        .layer(|layer| file(layer, "file/below", "upper"))
        .refused("file is not a directory");
    Fixture::new()
        .layer(|layer| {
            dir(layer, "dir");
            hard_link(layer, "link", "dir");
        })
        .refused("a hard link to a directory");
    Fixture::new()
        .layer(|layer| {
            file(layer, "dir/file", "");
            hard_link(layer, "dir", "dir/file");
        })
        .refused("leads nowhere");
    Fixture::new().layer(|layer| file(layer, "/", "")).tree();
    Fixture::new().layer(|layer| link(layer, "./", "/etc")).refused("the root is not a directory");
}

#[test]
fn compressed_layers_are_recognized_by_their_content() {
    let mut layer = Builder::new(Vec::new());
    file(&mut layer, "file", "text");
    let plain = layer.into_inner().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let gzip = gzip.finish().unwrap();
    // Some tools write several members.
    let mut members = Vec::new();
    for part in plain.chunks(700) {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(part).unwrap();
        members.extend(gzip.finish().unwrap());
    }
    let zstd = zstd::encode_all(plain.as_slice(), 1).unwrap();
    for bytes in [&plain, &gzip, &members, &zstd] {
        let mut fixture = Fixture::new();
        fixture.push(ContentDigest::of(&plain), bytes);
        assert_eq!(fixture.tree(), ["file: text"]);
        let mut fixture = Fixture::new();
        fixture.push(ContentDigest::of(b"other"), bytes);
        fixture.refused("instead of");
        let mut fixture = Fixture::new();
        fixture.push(ContentDigest::of(&plain), &bytes[..bytes.len() / 2]);
        assert!(fixture.unpack().is_err());
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let zeros = vec![0; 80 << 20];
    let mut header = Header::new_gnu();
    header.set_size(zeros.len() as u64);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    for kind in [EntryType::GNULongName, EntryType::XHeader, EntryType::Regular] {
        let mut layer = Builder::new(Vec::new());
        header.set_entry_type(kind);
        header.set_cksum();
        layer.append(&header, zeros.as_slice()).unwrap();
        let plain = layer.into_inner().unwrap();
        let mut fixture = Fixture::new();
        let packed = zstd::encode_all(plain.as_slice(), 1).unwrap();
        assert!(packed.len() < 1 << 20);
        fixture.push(ContentDigest::of(&plain), &packed);
        let reason = if kind == EntryType::Regular { "too large" } else { "too long" };
        fixture.refused(reason);
    }
}

#[test]
fn a_file_may_have_a_long_name_and_attributes_are_dropped() {
    let name = format!("{}/{}", "d".repeat(200), "f".repeat(200));
    let fixture = Fixture::new().layer(|layer| {
        let mut header = Header::new_gnu();
        header.set_size(4);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_cksum();
        layer.append_data(&mut header, &name, &b"long"[..]).unwrap();
        let attributes = [
            ("path", "from-attributes".as_bytes()),
            ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
            ("SCHILY.xattr.user.mark", b"y"),
        ];
        layer.append_pax_extensions(attributes).unwrap();
        file(layer, "short", "text");
    });
    let dir = format!("{}/", "d".repeat(200));
    assert_eq!(fixture.tree(), [dir, format!("{name}: long"), "from-attributes: text".to_owned()]);
    let names = rustix::fs::listxattr(fixture.root().join("from-attributes"), &mut [0; 256][..]);
    assert_eq!(names, Ok(0));
}
