//! Power cuts: records the block writes below the server's home, cuts them at random points, starts the server on the
//! resulting disk and compares its state with the changes that were acknowledged before the cut.
//!
//! ```text
//!  stead serve ─▶ ext4 ─▶ loop device ─▶ FUSE file `disk` ─▶ record of writes and barriers
//!                                                               │ cut at a record
//!  stead serve ◀─ ext4 ◀─ loop device ◀─ image: all before the last barrier, some of the rest
//! ```

pub mod cut;
pub mod fuse;
pub mod witness;

use std::{
    fs::{self, File},
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;

use crate::{
    http::HttpRequest,
    report::Report,
    rng::Rng,
    run::{Options, print_summary},
    server::{RunDirectory, Server},
};
use cut::{PowerCut, Replay};
use fuse::RecordingDisk;
use witness::Witness;

/// The size of the recorded disk.
const DISK_BYTES: usize = 256 << 20;
/// How long a file system may be busy before it is unmounted.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(30);

/// Records a workload, cuts it `cuts` times, and returns the number of violations.
///
/// # Errors
/// If the machine cannot record block writes (root, `/dev/fuse`, loop devices and `mkfs.ext4` are needed) or the server
/// does not start.
pub fn run(options: &Options, cuts: usize) -> Result<usize> {
    let directory = RunDirectory::create(&options.parent)?;
    println!("directory {}", directory.path().display());
    let report = Arc::new(Report::default());
    let (base, disk, witnesses) = record(options, &directory, &report)?;
    let barriers = disk.records.iter().filter(|r| matches!(r, fuse::DiskRecord::Barrier)).count();
    println!(
        "recorded {} writes and {barriers} barriers; {} facts were acknowledged",
        disk.records.len() - barriers,
        witnesses.iter().map(Witness::facts).sum::<usize>()
    );
    ensure!(barriers > 0, "no barrier reached the disk");
    let mut rng = Rng::new(options.seed, &[3]);
    let mut points: Vec<usize> =
        (0..cuts).map(|_| 1 + rng.below(disk.records.len() as u64) as usize).collect();
    points.sort_unstable();
    let mut replay = Replay::new(base, &disk.records);
    for (index, point) in points.iter().enumerate() {
        let content = replay.cut(*point, &mut rng);
        let moment = PowerCut { position: *point, at: disk.times[point - 1], index };
        let before = report.violations().len();
        if let Err(error) = verify(options, &directory, &content, moment, &witnesses, &report) {
            report.violation("start", format!("cut {index} at {point}"), format!("{error:#}"));
        }
        if report.violations().len() > before && index < 10 {
            let image = directory.path().join(format!("cut-{index}.img"));
            write_image(&image, &content)?;
            println!("image of cut {index} at record {point}: {}", image.display());
        }
    }
    report.print_counts();
    println!("{cuts} cuts");
    let violations = report.violations();
    print_summary(&violations.iter().map(|violation| violation.kind).collect::<Vec<_>>());
    let violations = violations.len();
    if violations == 0 {
        fs::remove_dir_all(directory.path())?;
    }
    Ok(violations)
}

fn record(
    options: &Options,
    directory: &RunDirectory,
    report: &Arc<Report>,
) -> Result<(Vec<u8>, fuse::Disk, Vec<Witness>)> {
    let mountpoint = directory.path().join("recorder");
    fs::create_dir_all(&mountpoint)?;
    let recorder = RecordingDisk::mount(&mountpoint, DISK_BYTES)?;
    let options_of_ext4 = ["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"];
    let device = run_command(Command::new("losetup").args(["-f", "--show"]).arg(recorder.file()))?;
    let device = device.trim().to_owned();
    let recorded = (|| {
        run_command(Command::new("mkfs.ext4").args(options_of_ext4).arg(&device))?;
        let home = Mounted::mount(Path::new(&device), &directory.home(), "noatime")?;
        let server = Server::start(&options.binary, directory, &options.provider, Vec::new())?;
        let http = server.http();
        let request = HttpRequest::new("POST", "/api/projects").json(&json!({"prefix": "power"}));
        let project = http.send(&request, None).ok().context("cannot create a project")?;
        let project = project.json()["project_id"].as_str().context("no project id")?.to_owned();
        let mut witnesses = Vec::new();
        for index in 0..options.clients {
            witnesses.push(Witness::create(index, http.clone(), &project)?);
        }
        run_command(&mut Command::new("sync"))?;
        let base = {
            let mut disk = recorder.disk.lock();
            disk.records.clear();
            disk.times.clear();
            disk.content.clone()
        };
        let deadline = Instant::now() + options.duration;
        std::thread::scope(|scope| {
            for witness in &mut witnesses {
                scope.spawn(|| witness.work(options.seed, &recorder, report, deadline));
            }
        });
        let mut disk = recorder.disk.lock();
        let empty = fuse::Disk { content: Vec::new(), records: Vec::new(), times: Vec::new() };
        let mut taken = std::mem::replace(&mut *disk, empty);
        // The file system must stay readable and writable until it is unmounted.
        disk.content = std::mem::take(&mut taken.content);
        drop(disk);
        drop(server);
        drop(home);
        Ok((base, taken, witnesses))
    })();
    let _ = run_command(Command::new("losetup").args(["-d", &device]));
    recorded
}

fn verify(
    options: &Options,
    directory: &RunDirectory,
    content: &[u8],
    moment: PowerCut,
    witnesses: &[Witness],
    report: &Report,
) -> Result<()> {
    let image = directory.path().join("cut.img");
    write_image(&image, content)?;
    let home = Mounted::mount(&image, &directory.home(), "noatime,loop")?;
    let server = Server::start(&options.binary, directory, &options.provider, Vec::new())?;
    let http = server.http();
    for witness in witnesses {
        witness.verify(&http, moment, report);
    }
    drop(server);
    drop(home);
    Ok(())
}

/// Writes an image, with holes where the content is zero.
fn write_image(path: &Path, content: &[u8]) -> Result<()> {
    const BLOCK_BYTES: usize = 64 << 10;
    let _ = fs::remove_file(path);
    let mut file = File::create(path)?;
    file.set_len(content.len() as u64)?;
    for (index, block) in content.chunks(BLOCK_BYTES).enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            file.seek(SeekFrom::Start((index * BLOCK_BYTES) as u64))?;
            file.write_all(block)?;
        }
    }
    Ok(())
}

/// A mounted file system, unmounted when dropped.
#[derive(Debug)]
struct Mounted(PathBuf);

impl Mounted {
    fn mount(source: &Path, target: &Path, options: &str) -> Result<Mounted> {
        run_command(Command::new("mount").args(["-o", options]).arg(source).arg(target))?;
        Ok(Mounted(target.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Processes that were just killed may still have files open.
        let deadline = Instant::now() + UNMOUNT_TIMEOUT;
        while Instant::now() < deadline {
            if run_command(Command::new("umount").arg(&self.0)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = run_command(Command::new("umount").arg("-l").arg(&self.0));
    }
}

fn run_command(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
