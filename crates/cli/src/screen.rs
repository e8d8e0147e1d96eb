//! `stead screen`: renders terminal output without a server.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use vt::{Screen, Size};

const READ_BUFFER_BYTES: usize = 64 * 1024;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stead screen --cols 100 --rows 30 --format text < recording\n  stead screen --cut 5000 < recording > picture; cat picture"
)]
pub struct ScreenArgs {
    /// Number of columns
    #[arg(long, default_value_t = 80, value_name = "N")]
    cols: u16,
    /// Number of rows
    #[arg(long, default_value_t = 24, value_name = "N")]
    rows: u16,
    /// Lines of scrollback
    #[arg(long, default_value_t = 5000, value_name = "N")]
    scrollback: usize,
    /// Output format
    #[arg(long, value_enum, default_value_t = ScreenFormat::Ansi)]
    format: ScreenFormat,
    /// Read at most this many bytes
    #[arg(long, value_name = "N")]
    cut: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ScreenFormat {
    /// Escape sequences that draw the screen
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
    let mut chunk = vec![0; READ_BUFFER_BYTES];
    loop {
        match input.read(&mut chunk)? {
            0 => break,
            // There is no program to send the replies to.
            count => drop(screen.feed(&chunk[..count])),
        }
    }
    let picture = match args.format {
        ScreenFormat::Ansi => screen.snapshot(),
        ScreenFormat::Text => screen.text(args.scrollback).into_bytes(),
        ScreenFormat::Html => screen.html(args.scrollback).into_bytes(),
        ScreenFormat::Json => vt::screen_json(&screen).into_bytes(),
    };
    let mut output = io::stdout().lock();
    output.write_all(&picture)?;
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}
