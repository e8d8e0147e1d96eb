//! Throughput, memory and snapshots of the screen, beside `alacritty_terminal` and
//! `vt100`: CPU time, the best of several rounds, in which the emulators alternate.
//!
//! usage: vt-peers [DIRECTORY]    also writes the inputs there, and our MB/s, for other programs

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use alacritty_terminal::event::VoidListener;
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::term::{Config, Term};
use alacritty_terminal::vte::ansi::Processor;

const COLS: usize = 80;
const ROWS: usize = 24;
const SCROLLBACK: usize = 5000;
const INPUT: usize = 16 << 20;
const ROUNDS: usize = 5;

struct Counting;
static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }
}

fn inputs() -> [(&'static str, Vec<u8>); 4] {
    [
        ("plain log lines", fill(plain)),
        ("dense colour", fill(colour)),
        ("full-screen redraw", fill(redraw)),
        ("CJK and emoji", fill(unicode)),
    ]
}

fn fill(line: fn(&mut Random, &mut Vec<u8>)) -> Vec<u8> {
    let (mut random, mut out) = (Random(42), Vec::with_capacity(INPUT + 4096));
    while out.len() < INPUT {
        line(&mut random, &mut out);
    }
    out
}

fn plain(random: &mut Random, out: &mut Vec<u8>) {
    let text = format!("2026-01-02T03:04:{:02}.{:03}Z INFO request{} id={:08x} ", random.below(60), random.below(1000), " handled".repeat(random.below(3)), random.below(1 << 30));
    out.extend_from_slice(text.as_bytes());
    for _ in 0..random.below(30) {
        out.push(b'a' + random.below(26) as u8);
    }
    out.extend_from_slice(b"\r\n");
}

fn colour(random: &mut Random, out: &mut Vec<u8>) {
    let mut col = 0;
    while col < COLS - 4 {
        let n = 1 + random.below(4);
        let sequence = match random.below(4) {
            0 => format!("\x1b[{}m", 30 + random.below(8)),
            1 => format!("\x1b[38;5;{}m", random.below(256)),
            2 => format!("\x1b[1;48;5;{}m", random.below(256)),
            _ => format!("\x1b[0;{}m", 90 + random.below(8)),
        };
        out.extend_from_slice(sequence.as_bytes());
        for _ in 0..n {
            out.push(b'a' + random.below(26) as u8);
        }
        col += n;
    }
    out.extend_from_slice(b"\x1b[m\r\n");
}

fn redraw(random: &mut Random, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\x1b[H");
    for row in 1..=ROWS {
        out.extend_from_slice(format!("\x1b[{row};1H\x1b[{}m{row:3} \x1b[m", 31 + random.below(7)).as_bytes());
        for _ in 0..6 {
            let word: String = (0..4 + random.below(7)).map(|_| (b'a' + random.below(26) as u8) as char).collect();
            out.extend_from_slice(word.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(b"\x1b[K");
    }
}

fn unicode(random: &mut Random, out: &mut Vec<u8>) {
    for _ in 0..4 + random.below(12) {
        match random.below(5) {
            0 => out.extend_from_slice("😀🎉🚀".as_bytes()),
            1 => out.extend_from_slice("こんにちは".as_bytes()),
            2 => out.extend_from_slice(b"plain text "),
            _ => {
                for _ in 0..4 {
                    let c = char::from_u32(0x4e00 + random.below(0x5000) as u32).unwrap_or('中');
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// The size of a chunk that a pseudoterminal typically returns.
const CHUNK: usize = 64 * 1024;

trait Emulator {
    fn feed(&mut self, bytes: &[u8]);
}

impl Emulator for vt::Screen {
    fn feed(&mut self, bytes: &[u8]) {
        vt::Screen::feed(self, bytes);
    }
}

struct Size;

impl Dimensions for Size {
    fn total_lines(&self) -> usize {
        ROWS
    }
    fn screen_lines(&self) -> usize {
        ROWS
    }
    fn columns(&self) -> usize {
        COLS
    }
}

struct Alacritty(Term<VoidListener>, Processor);

impl Emulator for Alacritty {
    fn feed(&mut self, bytes: &[u8]) {
        self.1.advance(&mut self.0, bytes);
    }
}

impl Emulator for vt100::Parser {
    fn feed(&mut self, bytes: &[u8]) {
        self.process(bytes);
    }
}

fn ours() -> vt::Screen {
    vt::Screen::new(vt::Size { cols: COLS as u16, rows: ROWS as u16 }, SCROLLBACK)
}

type Make = fn() -> Box<dyn Emulator>;

fn emulators() -> [(&'static str, Make); 3] {
    [
        ("stead", || Box::new(ours())),
        ("alacritty", || {
            let config = Config { scrolling_history: SCROLLBACK, ..Config::default() };
            Box::new(Alacritty(Term::new(config, &Size, VoidListener), Processor::new()))
        }),
        ("vt100", || Box::new(vt100::Parser::new(ROWS as u16, COLS as u16, SCROLLBACK))),
    ]
}

/// Returns the CPU time of this thread, because other programs may be running.
fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = processor_time();
    let result = work();
    (processor_time() - start, result)
}

/// Returns the best of many rounds, for short work.
fn best<T>(mut work: impl FnMut() -> T) -> Duration {
    (0..ROUNDS * 6).map(|_| timed(&mut work).0).min().unwrap_or_default()
}

fn main() {
    let inputs = inputs();
    let speeds = throughput(&inputs);
    if let Some(folder) = std::env::args().nth(1) {
        for ((name, bytes), speed) in inputs.iter().zip(speeds) {
            let path = Path::new(&folder).join(name.replace(' ', "-"));
            fs::write(path.with_extension("speed"), speed.to_string())
                .and_then(|()| fs::write(path, bytes))
                .expect("the directory can be written");
        }
    }
    memory(&inputs);
    snapshots(&inputs);
}

/// Prints the MB/s of all emulators; returns ours.
fn throughput(inputs: &[(&str, Vec<u8>)]) -> Vec<f64> {
    println!("\nMB/s");
    let mut ours = Vec::new();
    for (name, bytes) in inputs {
        let mut times = [Duration::MAX; 3];
        for _ in 0..ROUNDS {
            for (i, (_, make)) in emulators().iter().enumerate() {
                let mut emulator = make();
                let (time, ()) = timed(|| bytes.chunks(CHUNK).for_each(|chunk| emulator.feed(chunk)));
                times[i] = times[i].min(time);
            }
        }
        print!("{name:20}");
        let speeds = times.map(|time| bytes.len() as f64 / 1e6 / time.as_secs_f64());
        for ((who, _), speed) in emulators().iter().zip(speeds) {
            print!("  {who} {speed:6.1}");
        }
        println!("  ({:.2} x alacritty)", speeds[0] / speeds[1]);
        ours.push(speeds[0]);
    }
    ours
}

fn memory(inputs: &[(&str, Vec<u8>)]) {
    println!("\nmemory, KB");
    for (who, make) in emulators() {
        print!("{who:20}");
        let before = LIVE.load(Ordering::Relaxed);
        let mut emulator = make();
        emulator.feed(b"demo$ ");
        print!("  idle {:7.1}", (LIVE.load(Ordering::Relaxed) - before) as f64 / 1e3);
        drop(emulator);
        for (name, bytes) in &inputs[..2] {
            let before = LIVE.load(Ordering::Relaxed);
            let mut emulator = make();
            emulator.feed(&bytes[..bytes.len() / 2]);
            print!("  {name} {:7.0}", (LIVE.load(Ordering::Relaxed) - before) as f64 / 1e3);
        }
        println!();
    }
}

fn snapshots(inputs: &[(&str, Vec<u8>)]) {
    println!("\n{SCROLLBACK} lines and the screen");
    for (name, bytes) in &inputs[..2] {
        let mut screen = ours();
        screen.feed(&bytes[..bytes.len() / 2]);
        let (picture, checkpoint) = (screen.snapshot(), screen.checkpoint());
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "{name:20}  snapshot {:.2} ms, {} KB  checkpoint {:.2} ms, {} KB  restore {:.2} ms",
            ms(best(|| screen.snapshot())),
            picture.len() / 1000,
            ms(best(|| screen.checkpoint())),
            checkpoint.len() / 1000,
            ms(best(|| vt::Screen::restore(&checkpoint).is_ok())),
        );
    }
}
