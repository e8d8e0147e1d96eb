//! Binary checkpoints of a screen, which only this crate reads.
//!
//! ```text
//! "STVT" version:u16 crc32:u32 body
//! ```
//! The body contains every field in a fixed order. Numbers are little-endian, and lists start
//! with their length. The checksum covers the body. Scrollback is stored in its in-memory
//! format, so restoring it is a copy.

use crate::grid::buffer::{Buffer, Margins, Saved, Tabs};
use crate::grid::row::Row;
use crate::grid::scrollback::{Names, Scrollback};
use crate::links::Link;
use crate::parser::Parser;
use crate::screen::{
    Charsets, Colors, CursorShape, KeyboardFlags, Mark, Modes, MouseEncoding, MouseMode,
};
use crate::style::Style;
use crate::{Screen, Size};

const MAGIC: &[u8; 4] = b"STVT";
const VERSION: u16 = 3;
const HEADER: usize = 10;

/// Why a checkpoint cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestoreError {
    /// The bytes are not a checkpoint.
    NotACheckpoint,
    /// The format version is unknown.
    Version(u16),
    /// The checksum does not match, so the bytes are damaged.
    Checksum,
    /// The checksum matches, but the body cannot be parsed.
    Malformed,
}

impl std::fmt::Display for RestoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RestoreError::NotACheckpoint => f.write_str("not a screen checkpoint"),
            RestoreError::Version(version) => {
                write!(f, "screen checkpoint of unknown version {version}")
            }
            RestoreError::Checksum => f.write_str("screen checkpoint is damaged"),
            RestoreError::Malformed => f.write_str("screen checkpoint is malformed"),
        }
    }
}

impl std::error::Error for RestoreError {}

impl Screen {
    /// Returns the whole state of the screen, for [`Screen::restore`].
    pub fn checkpoint(&self) -> Vec<u8> {
        let mut out = CheckpointWriter(Vec::with_capacity(4096));
        out.0.extend_from_slice(MAGIC);
        out.0.extend_from_slice(&VERSION.to_le_bytes());
        out.0.extend_from_slice(&[0; 4]);
        write_screen(&mut out, self);
        let crc = crc32fast::hash(&out.0[HEADER..]);
        out.0[6..HEADER].copy_from_slice(&crc.to_le_bytes());
        out.0
    }

    /// Restores a screen from its checkpoint.
    pub fn restore(bytes: &[u8]) -> Result<Screen, RestoreError> {
        if bytes.len() < HEADER || &bytes[..4] != MAGIC {
            return Err(RestoreError::NotACheckpoint);
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != VERSION {
            return Err(RestoreError::Version(version));
        }
        let crc = u32::from_le_bytes([bytes[6], bytes[7], bytes[8], bytes[9]]);
        if crc32fast::hash(&bytes[HEADER..]) != crc {
            return Err(RestoreError::Checksum);
        }
        let mut input = CheckpointReader(&bytes[HEADER..]);
        let screen = read_screen(&mut input).ok_or(RestoreError::Malformed)?;
        if input.0.is_empty() { Ok(screen) } else { Err(RestoreError::Malformed) }
    }
}

struct CheckpointWriter(Vec<u8>);

impl CheckpointWriter {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }
    fn bool(&mut self, value: bool) {
        self.0.push(u8::from(value));
    }
    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    fn size(&mut self, value: usize) {
        self.u32(value as u32);
    }
    fn bytes(&mut self, value: &[u8]) {
        self.size(value.len());
        self.0.extend_from_slice(value);
    }
    fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut CheckpointWriter, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }
}

struct CheckpointReader<'a>(&'a [u8]);

impl<'a> CheckpointReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }
    fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }
    fn size(&mut self) -> Option<usize> {
        Some(self.u32()? as usize)
    }
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.size()?;
        self.take(count)
    }
    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }
    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.bool()? { Some(Some(read(self)?)) } else { Some(None) }
    }
}

fn write_screen(out: &mut CheckpointWriter, screen: &Screen) {
    out.size(screen.cols);
    out.size(screen.rows);
    out.bool(screen.alt);
    out.bool(screen.checksum_reports());
    let links: Vec<_> = screen.links.live().collect();
    out.size(links.len());
    for (number, link) in links {
        out.u32(number);
        out.option(link.id.as_deref(), |out, id| out.bytes(id.as_bytes()));
        out.bytes(link.uri.as_bytes());
    }
    write_buffer(out, &screen.buf, screen);
    write_buffer(out, &screen.other, screen);
    write_style(out, &screen.pen);
    write_modes(out, &screen.modes);
    let Charsets { sets, level, current } = screen.charsets;
    out.0.extend_from_slice(&sets);
    out.u8(level);
    out.u8(current);
    out.bytes(&screen.keyboard.normal);
    out.bytes(&screen.keyboard.alternate);
    out.u8(screen.keyboard.modify_other_keys);
    out.option(screen.colors.as_deref(), |out, colors| {
        for color in colors.palette.iter().chain(&colors.special).chain(&colors.attributes) {
            out.option(*color, CheckpointWriter::u32);
        }
    });
    for text in [&screen.title, &screen.icon, &screen.cwd] {
        out.bytes(text.as_bytes());
    }
    for stack in [&screen.titles, &screen.icons] {
        out.size(stack.len());
        for text in stack {
            out.bytes(text.as_bytes());
        }
    }
    let (mark, code) = match screen.mark {
        None => (0, None),
        Some(Mark::Prompt) => (1, None),
        Some(Mark::Input) => (2, None),
        Some(Mark::Output) => (3, None),
        Some(Mark::Done(code)) => (4, code),
    };
    out.u8(mark);
    out.option(code, |out, code| out.u32(code as u32));
    out.option(screen.margin_wrap(), |out, (x, y)| {
        out.size(x);
        out.size(y);
    });
    write_parser(out, &screen.parser);
}

fn read_screen(input: &mut CheckpointReader<'_>) -> Option<Screen> {
    let (cols, rows) = (input.size()?, input.size()?);
    let size = Size { cols: cols.try_into().ok()?, rows: rows.try_into().ok()? };
    let mut screen = Screen::new(size, 0);
    if screen.size() != size {
        return None;
    }
    screen.alt = input.bool()?;
    let reports = input.bool()?;
    screen.set_checksum_reports(reports);
    for _ in 0..input.size()? {
        let number = input.u32()?;
        let id = input.option(CheckpointReader::text)?.map(Into::into);
        let uri = input.text()?.into();
        if number == 0 || number as usize > 1 << 20 {
            return None;
        }
        screen.links.put(number, Link { id, uri });
    }
    screen.buf = read_buffer(input, &mut screen)?;
    screen.other = read_buffer(input, &mut screen)?;
    if screen.buf.rows.len() != rows
        || !matches!(screen.other.rows.len(), 0) && screen.other.rows.len() != rows
    {
        return None;
    }
    let pen = read_style(input)?;
    screen.set_pen(pen);
    screen.modes = read_modes(input)?;
    let sets = input.take(4)?.try_into().ok()?;
    screen.charsets =
        Charsets { sets, level: input.u8().filter(|l| *l < 4)?, current: input.u8()? };
    screen.keyboard = KeyboardFlags {
        normal: input.bytes()?.to_vec(),
        alternate: input.bytes()?.to_vec(),
        modify_other_keys: input.u8()?,
    };
    screen.colors = input.option(|input| {
        let mut colors = Box::<Colors>::default();
        let Colors { palette, special, attributes } = &mut *colors;
        for color in palette.iter_mut().chain(special).chain(attributes) {
            *color = input.option(CheckpointReader::u32)?;
        }
        Some(colors)
    })?;
    screen.title = input.text()?;
    screen.icon = input.text()?;
    screen.cwd = input.text()?;
    for _ in 0..input.size()? {
        screen.titles.push(input.text()?);
    }
    for _ in 0..input.size()? {
        screen.icons.push(input.text()?);
    }
    let mark = input.u8()?;
    let code = input.option(CheckpointReader::u32)?.map(|code| code as i32);
    screen.mark = match mark {
        0 => None,
        1 => Some(Mark::Prompt),
        2 => Some(Mark::Input),
        3 => Some(Mark::Output),
        4 => Some(Mark::Done(code)),
        _ => return None,
    };
    let wrap = input.option(|input| Some((input.size()?, input.size()?)))?;
    screen.set_margin_wrap(wrap);
    screen.parser = read_parser(input)?;
    Some(screen)
}

fn write_style(out: &mut CheckpointWriter, style: &Style) {
    for word in [style.fg, style.bg, style.ext, style.link] {
        out.u32(word);
    }
}

fn read_style(input: &mut CheckpointReader<'_>) -> Option<Style> {
    Some(Style { fg: input.u32()?, bg: input.u32()?, ext: input.u32()?, link: input.u32()? })
}

fn write_buffer(out: &mut CheckpointWriter, buffer: &Buffer, screen: &Screen) {
    for value in [
        buffer.x,
        buffer.y,
        buffer.margins.top,
        buffer.margins.bottom,
        buffer.margins.left,
        buffer.margins.right,
        buffer.saved.x,
        buffer.saved.y,
    ] {
        out.size(value);
    }
    out.u32(buffer.saved.fg);
    out.u32(buffer.saved.bg);
    out.u8(buffer.saved.charset);
    out.option(buffer.tabs.custom(), |out, stops| {
        out.size(stops.len());
        out.0.extend(stops.iter().map(|stop| u8::from(*stop)));
    });
    out.size(buffer.scrollback.limit());
    out.bool(buffer.scrollback.any_odd());
    out.size(buffer.scrollback.bytes());
    for chunk in buffer.scrollback.chunks() {
        out.0.extend_from_slice(chunk);
    }
    // Visible rows are packed in the format of the scrollback.
    out.size(buffer.rows.len());
    let mut rows = Scrollback::new(buffer.rows.len());
    for row in &buffer.rows {
        rows.push(row, Names { styles: &screen.styles, clusters: &screen.clusters });
    }
    out.size(rows.bytes());
    for chunk in rows.chunks() {
        out.0.extend_from_slice(chunk);
    }
}

fn read_buffer(input: &mut CheckpointReader<'_>, screen: &mut Screen) -> Option<Buffer> {
    let (cols, height) = (usize::from(screen.size().cols), usize::from(screen.size().rows));
    let mut buffer = Buffer::new(cols, height, 0);
    buffer.x = input.size().filter(|x| *x <= cols)?;
    buffer.y = input.size().filter(|y| *y < height)?;
    buffer.margins = Margins {
        top: input.size()?,
        bottom: input.size().filter(|y| *y < height)?,
        left: input.size()?,
        right: input.size().filter(|x| *x < cols)?,
    };
    if buffer.margins.top > buffer.margins.bottom || buffer.margins.left > buffer.margins.right {
        return None;
    }
    buffer.saved = Saved {
        x: input.size()?,
        y: input.size()?,
        fg: input.u32()?,
        bg: input.u32()?,
        charset: input.u8()?,
    };
    buffer.tabs = Tabs::with(input.option(|input| {
        let stops = input.bytes()?;
        Some(stops.iter().map(|stop| *stop != 0).collect())
    })?);
    buffer.scrollback = Scrollback::new(input.size()?);
    let odd = input.bool()?;
    buffer.scrollback.adopt(input.bytes()?, odd)?;
    let count = input.size()?;
    let mut packed = Scrollback::new(count);
    packed.adopt(input.bytes()?, false)?;
    let rows: Vec<Row> =
        packed.iter().map(|line| line.row(&mut screen.styles, &mut screen.clusters)).collect();
    if rows.len() != count {
        return None;
    }
    buffer.rows = rows.into();
    Some(buffer)
}

fn write_modes(out: &mut CheckpointWriter, modes: &Modes) {
    for flag in [
        modes.app_cursor,
        modes.app_keypad,
        modes.bracketed_paste,
        modes.insert,
        modes.origin,
        modes.reverse_wrap,
        modes.send_focus,
        modes.synchronized,
        modes.wrap,
        modes.line_feed,
        modes.reverse_video,
        modes.margins,
        modes.cursor_hidden,
        modes.blink,
        modes.rect_exact,
    ] {
        out.bool(flag);
    }
    out.u8(match modes.cursor_style {
        None => 0,
        Some((shape, blink)) => 1 + shape as u8 * 2 + u8::from(blink),
    });
    out.u8(modes.mouse as u8);
    out.u8(modes.mouse_encoding as u8);
    out.u8(modes.level.0);
    out.u8(modes.level.1);
    for word in [modes.inert, modes.kept.0, modes.kept.1] {
        out.u64(word);
    }
}

fn read_modes(input: &mut CheckpointReader<'_>) -> Option<Modes> {
    Some(Modes {
        app_cursor: input.bool()?,
        app_keypad: input.bool()?,
        bracketed_paste: input.bool()?,
        insert: input.bool()?,
        origin: input.bool()?,
        reverse_wrap: input.bool()?,
        send_focus: input.bool()?,
        synchronized: input.bool()?,
        wrap: input.bool()?,
        line_feed: input.bool()?,
        reverse_video: input.bool()?,
        margins: input.bool()?,
        cursor_hidden: input.bool()?,
        blink: input.bool()?,
        rect_exact: input.bool()?,
        cursor_style: match input.u8()? {
            0 => None,
            n @ 1..=6 => {
                let shapes = [CursorShape::Block, CursorShape::Underline, CursorShape::Bar];
                Some((shapes[usize::from(n - 1) / 2], (n - 1) % 2 == 1))
            }
            _ => return None,
        },
        mouse: match input.u8()? {
            0 => MouseMode::None,
            1 => MouseMode::X10,
            2 => MouseMode::Vt200,
            3 => MouseMode::Drag,
            4 => MouseMode::Any,
            _ => return None,
        },
        mouse_encoding: match input.u8()? {
            0 => MouseEncoding::Default,
            1 => MouseEncoding::Sgr,
            2 => MouseEncoding::SgrPixels,
            _ => return None,
        },
        level: (input.u8()?, input.u8()?),
        inert: input.u64()?,
        kept: (input.u64()?, input.u64()?),
    })
}

/// Stores the parser as the bytes that bring a fresh parser to its state.
fn write_parser(out: &mut CheckpointWriter, parser: &Parser) {
    let mut pending = Vec::new();
    parser.pending(&mut pending);
    out.bytes(&pending);
    out.u8(parser.join);
}

fn read_parser(input: &mut CheckpointReader<'_>) -> Option<Parser> {
    let mut scratch = Screen::new(Size { cols: 2, rows: 1 }, 0);
    scratch.feed(input.bytes()?);
    scratch.parser.join = input.u8().filter(|join| *join <= 2)?;
    Some(scratch.parser)
}
