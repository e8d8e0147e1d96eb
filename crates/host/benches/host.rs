//! The cost of a host: key echo, memory of an idle terminal, time to open a terminal, CPU of a flood.
//! `cargo bench -p host` prints one line per figure.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use host::client::Client;
use wire::{Event, ReplyCode, Request, Shell};

const TIMEOUT: Duration = Duration::from_secs(30);

struct Bench {
    dir: PathBuf,
    process: Child,
    client: Client,
}

impl Bench {
    fn start() -> Self {
        let dir = std::env::temp_dir().join(format!("stead-host-bench-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let run = dir.join(dir.file_name().unwrap());
        let mut process = Command::new(env!("CARGO_BIN_EXE_stead-host"))
            .args(["host", "--dir"])
            .arg(&run)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut client = Client::connect(&run).unwrap();
        client.receive(TIMEOUT).unwrap();
        Self { dir, process, client }
    }

    fn open(&mut self, id: &str, argv: &[&str]) {
        use std::os::unix::ffi::OsStrExt;
        let seq = self.client.seq();
        let answer = self.client.ask(
            &Request::Open {
                seq,
                terminal: id.into(),
                argv: argv.iter().map(|text| text.as_bytes().to_vec()).collect(),
                cwd: b"/".to_vec(),
                env: vec![(b"PATH".to_vec(), b"/usr/bin:/bin".to_vec())],
                cols: 80,
                rows: 24,
                dir: self.dir.join("terminals").join(id).as_os_str().as_bytes().to_vec(),
                log_limit: 16 << 20,
                base_offset: 0,
                shell: Shell::Plain,
                state: Vec::new(),
                notice: Vec::new(),
            },
            TIMEOUT,
        );
        assert!(matches!(answer.unwrap(), Event::Reply { code: ReplyCode::Ok, .. }));
    }

    fn attach(&mut self, id: &str) {
        let seq = self.client.seq();
        self.client.ask(&Request::Attach { seq, terminal: id.into(), from: 0 }, TIMEOUT).unwrap();
    }

    /// Types a key and waits for its echo.
    fn echo(&mut self, id: &str) -> Duration {
        let seq = self.client.seq();
        let (terminal, write_id, data) = (id.into(), String::new(), b"x".to_vec());
        let start = Instant::now();
        self.client.send(&Request::Input { seq, terminal, write_id, data }).unwrap();
        loop {
            if let Event::Output { terminal, .. } = self.client.receive(TIMEOUT).unwrap()
                && terminal == id
            {
                return start.elapsed();
            }
        }
    }

    fn echo_percentiles(&mut self, id: &str) -> (Duration, Duration) {
        let mut times: Vec<Duration> = (0..2000).map(|_| self.echo(id)).collect();
        times.sort();
        (times[1000], times[1980])
    }

    /// Proportional set size in KiB.
    fn pss(&self) -> u64 {
        let path = format!("/proc/{}/smaps_rollup", self.process.id());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find(|line| line.starts_with("Pss:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let seq = self.client.seq();
        let _ = self.client.ask(&Request::Shutdown { seq }, TIMEOUT);
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(Path::new(&self.dir));
    }
}

fn main() {
    let mut bench = Bench::start();
    bench.open("echo", &["cat"]);
    bench.attach("echo");
    let (median, worst) = bench.echo_percentiles("echo");
    println!("echo, 1 terminal: p50 {median:?} p99 {worst:?}");
    println!("host alone: {} KiB", bench.pss());

    let before = bench.pss();
    let start = Instant::now();
    for number in 0..1000 {
        bench.open(&format!("t{number}"), &["sleep", "1000000"]);
    }
    println!("open: {:?} each", start.elapsed() / 1000);
    let grown = bench.pss() - before;
    println!("memory: {} B an idle terminal", grown * 1024 / 1000);
    let (median, worst) = bench.echo_percentiles("echo");
    println!("echo, 1,000 terminals: p50 {median:?} p99 {worst:?}");
    let cpu = bench.cpu();
    std::thread::sleep(Duration::from_secs(5));
    println!("idle, 1,000 terminals: {:?} CPU in 5 s", bench.cpu() - cpu);

    let cpu = bench.cpu();
    let start = Instant::now();
    bench.open("flood", &["sh", "-c", "stty raw; head -c 100000000 /dev/zero"]);
    bench.attach("flood");
    loop {
        if let Event::Exited { .. } = bench.client.receive(TIMEOUT).unwrap() {
            break;
        }
    }
    println!("100 MB, watched: {:?}, {:?} CPU", start.elapsed(), bench.cpu() - cpu);
    bench.open("noise", &["sh", "-c", "exec yes"]);
    let (median, worst) = bench.echo_percentiles("echo");
    println!("echo beside a flood: p50 {median:?} p99 {worst:?}");
}
