//! `stead screen`: what a terminal would show after some bytes. No server is asked.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use vt::{Screen, Size};

const CHUNK: usize = 64 * 1024;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stead screen --cols 100 --rows 30 --format text < recording\n  stead screen --cut 5000 < recording > picture; cat picture"
)]
pub struct ScreenArgs {
    /// Columns of the screen
    #[arg(long, default_value_t = 80, value_name = "N")]
    cols: u16,
    /// Rows of the screen
    #[arg(long, default_value_t = 24, value_name = "N")]
    rows: u16,
    /// Lines kept above the screen
    #[arg(long, default_value_t = 5000, value_name = "N")]
    scrollback: usize,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Ansi)]
    format: Format,
    /// Read only so many bytes
    #[arg(long, value_name = "N")]
    cut: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Escape sequences that make a fresh terminal the same
    Ansi,
    /// Plain text
    Text,
    /// HTML
    Html,
    /// Size, cursor, modes and lines as JSON
    Json,
}

pub fn run(args: &ScreenArgs) -> anyhow::Result<ExitCode> {
    let mut screen = Screen::new(Size { cols: args.cols, rows: args.rows }, args.scrollback);
    let mut input = io::stdin().lock().take(args.cut.unwrap_or(u64::MAX));
    let mut chunk = vec![0; CHUNK];
    loop {
        match input.read(&mut chunk)? {
            0 => break,
            // Nobody is there to be answered.
            count => drop(screen.feed(&chunk[..count])),
        }
    }
    let picture = match args.format {
        Format::Ansi => screen.snapshot(),
        Format::Text => screen.text(args.scrollback).into_bytes(),
        Format::Html => screen.html(args.scrollback).into_bytes(),
        Format::Json => vt::screen_json(&screen).into_bytes(),
    };
    let mut output = io::stdout().lock();
    output.write_all(&picture)?;
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}
