//! The screen: the state after all input so far.

mod charset;
mod csi;
mod cursor;
mod dcs;
mod erase;
mod esc;
mod feed;
mod keyboard;
mod modes;
mod osc;
mod print;
mod rect;
mod reply;
mod sgr;
mod window;

use crate::compact;
use crate::grid::buffer::Buffer;
use crate::grid::cell::{Cell, Clusters};
use crate::grid::reflow::{NamesMut, Reflow};
use crate::grid::scrollback::Names;
use crate::links::Links;
use crate::parser::Parser;
use crate::style::{COLOR, Style};
use crate::style_table::Styles;

pub(crate) use charset::{Charsets, charset_changes};
pub(crate) use keyboard::KeyboardFlags;
pub use modes::{CursorShape, Modes, MouseEncoding, MouseMode};
pub use osc::Mark;
pub(crate) use osc::{Colors, default_color, wanted as wanted_osc};

const MIN_COLS: u16 = 2;
const MIN_ROWS: u16 = 1;
/// Larger sizes are clamped, which bounds the memory of a screen.
const MAX_COLS: u16 = 4096;
const MAX_ROWS: u16 = 2048;
const MAX_SCROLLBACK: usize = 1_000_000;
/// Further replies and events of one call to `feed` are dropped.
const MAX_REPLY_BYTES: usize = 64 * 1024;
const MAX_EVENTS: usize = 1024;

/// Columns and rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

impl Size {
    fn clamped(self) -> Size {
        Size {
            cols: self.cols.clamp(MIN_COLS, MAX_COLS),
            rows: self.rows.clamp(MIN_ROWS, MAX_ROWS),
        }
    }
}

/// The position of the cursor, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScreenCursor {
    /// Row from the top of the screen.
    pub row: u16,
    /// Column. While a wrap is pending it is the last one.
    pub col: u16,
    /// Whether the program shows the cursor.
    pub visible: bool,
}

/// Output of `feed` besides the changed screen.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Fed {
    /// Replies to the program's queries, to be written to its terminal as input.
    pub replies: Vec<u8>,
    /// Events for clients.
    pub events: Vec<ScreenEvent>,
}

/// A notification by a program that is not visible on the screen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScreenEvent {
    /// The window title was set.
    Title(String),
    /// The bell rang.
    Bell,
    /// The shell changed to this directory (OSC 7, or `Cwd` of OSC 633).
    Cwd(String),
    /// A boundary between prompt, command and output (OSC 133 and 633).
    Mark(Mark),
}

/// A terminal screen that processes output and can be exported at any time.
#[derive(Clone)]
pub struct Screen {
    pub(crate) cols: usize,
    pub(crate) rows: usize,
    /// The active buffer, and the other one.
    pub(crate) buf: Buffer,
    pub(crate) other: Buffer,
    pub(crate) alt: bool,

    pub(crate) pen: Style,
    /// The style number of the pen, or `None` if the pen changed since.
    pen_number: Option<u32>,
    pub(crate) styles: Styles,
    pub(crate) clusters: Clusters,
    pub(crate) links: Links,

    pub(crate) parser: Parser,
    pub(crate) modes: Modes,
    pub(crate) charsets: Charsets,
    pub(crate) keyboard: KeyboardFlags,
    pub(crate) colors: Option<Box<Colors>>,

    pub(crate) title: String,
    pub(crate) icon: String,
    pub(crate) titles: Vec<String>,
    pub(crate) icons: Vec<String>,
    pub(crate) cwd: String,
    pub(crate) mark: Option<Mark>,

    /// The cursor position at which a wrap at the right margin is pending.
    margin_wrap: Option<(usize, usize)>,
    checksum_reports: bool,
    fed: Fed,
}

impl Screen {
    /// Creates a blank screen that keeps up to `scrollback` lines.
    pub fn new(size: Size, scrollback: usize) -> Screen {
        let size = size.clamped();
        let (cols, rows) = (usize::from(size.cols), usize::from(size.rows));
        let mut buf = Buffer::new(cols, rows, scrollback.min(MAX_SCROLLBACK));
        buf.fill(Cell::NULL);
        Screen {
            cols,
            rows,
            buf,
            other: Buffer::new(cols, rows, 0),
            alt: false,
            pen: Style::default(),
            pen_number: Some(0),
            styles: Styles::default(),
            clusters: Clusters::default(),
            links: Links::default(),
            parser: Parser::default(),
            modes: Modes::default(),
            charsets: Charsets::default(),
            keyboard: KeyboardFlags::default(),
            colors: None,
            title: String::new(),
            icon: String::new(),
            titles: Vec::new(),
            icons: Vec::new(),
            cwd: String::new(),
            mark: None,
            margin_wrap: None,
            checksum_reports: false,
            fed: Fed::default(),
        }
    }

    /// Resizes the screen and reflows wrapped lines of the normal buffer.
    pub fn resize(&mut self, size: Size) {
        let size = size.clamped();
        if size == self.size() {
            return;
        }
        let (cols, rows) = (usize::from(size.cols), usize::from(size.rows));
        (self.cols, self.rows) = (cols, rows);
        let (active, other) =
            if self.alt { (Reflow::No, Reflow::Yes) } else { (Reflow::Yes, Reflow::No) };
        let mut names = NamesMut { styles: &mut self.styles, clusters: &mut self.clusters };
        self.buf.resize((cols, rows), active, &mut names);
        self.other.resize((cols, rows), other, &mut names);
        self.margin_wrap = None;
        self.sweep_if_due();
    }

    /// Columns and rows.
    pub fn size(&self) -> Size {
        Size { cols: self.cols as u16, rows: self.rows as u16 }
    }

    /// Position and visibility of the cursor.
    pub fn cursor(&self) -> ScreenCursor {
        ScreenCursor {
            row: self.buf.y as u16,
            col: self.buf.x.min(self.cols - 1) as u16,
            visible: !self.modes.cursor_hidden,
        }
    }

    /// The window title, empty if none was set.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Whether the alternate buffer is active.
    pub fn alt_screen(&self) -> bool {
        self.alt
    }

    /// The keyboard, mouse and display modes that the program set.
    pub fn modes(&self) -> &Modes {
        &self.modes
    }

    /// The directory that the shell last reported, empty if it reported none.
    pub fn cwd(&self) -> &str {
        &self.cwd
    }

    /// The last boundary that the shell marked.
    pub fn mark(&self) -> Option<Mark> {
        self.mark
    }

    /// The number of scrollback lines.
    pub fn scrollback(&self) -> usize {
        self.normal().scrollback.len()
    }

    /// Enables checksum reports (DECRQCRA). They let a program read the screen, so this is for
    /// conformance tests only.
    pub fn set_checksum_reports(&mut self, on: bool) {
        self.checksum_reports = on;
    }

    pub(crate) fn checksum_reports(&self) -> bool {
        self.checksum_reports
    }

    pub(crate) fn margin_wrap(&self) -> Option<(usize, usize)> {
        self.margin_wrap
    }

    pub(crate) fn set_margin_wrap(&mut self, at: Option<(usize, usize)>) {
        self.margin_wrap = at;
    }

    pub(crate) fn normal(&self) -> &Buffer {
        if self.alt { &self.other } else { &self.buf }
    }

    pub(crate) fn set_pen(&mut self, pen: Style) {
        self.pen = pen;
        self.pen_number = None;
    }

    /// The style number of the pen.
    #[inline]
    fn pen_number(&mut self) -> u32 {
        match self.pen_number {
            Some(number) => number,
            None => {
                let number = match compact::pack(&self.pen.for_cell()) {
                    Some(number) => number,
                    None => self.intern_pen(),
                };
                self.pen_number = Some(number);
                number
            }
        }
    }

    fn intern_pen(&mut self) -> u32 {
        self.sweep_if_due();
        self.styles.number(self.pen.for_cell())
    }

    /// The cell that an erase leaves behind.
    #[inline]
    fn erased(&mut self) -> Cell {
        if self.pen.bg & COLOR == 0 {
            return Cell::NULL;
        }
        Cell::null(self.styles.number(self.pen.erase()))
    }

    /// Scrolls the region up by one line.
    fn scroll(&mut self, wrapped: bool) {
        let fill = self.erased();
        let names = Names { styles: &self.styles, clusters: &self.clusters };
        self.buf.scroll(fill, wrapped, names);
    }

    fn sweep_if_due(&mut self) {
        if self.styles.wants_sweep() || self.links.wants_sweep() || self.clusters.wants_sweep() {
            self.sweep();
        }
    }

    /// Removes styles, clusters and links that no cell uses.
    fn sweep(&mut self) {
        let mut styles = vec![false; self.styles.highest() + 1];
        let mut clusters = vec![false; self.clusters.highest()];
        for row in self.buf.rows.iter().chain(&self.other.rows) {
            row.mark(&mut styles, &mut clusters);
        }
        self.styles.sweep(&styles);
        self.clusters.sweep(&clusters);
        if self.links.wants_sweep() {
            let mut links = vec![false; self.links.highest() + 1];
            links[self.pen.link as usize] = true;
            for style in self.styles.live() {
                links[style.link as usize] = true;
            }
            self.normal().scrollback.mark_links(&mut links);
            self.links.sweep(&links);
        }
        self.pen_number = None;
    }

    fn reply(&mut self, answer: &[u8]) {
        if self.fed.replies.len() + answer.len() <= MAX_REPLY_BYTES {
            self.fed.replies.extend_from_slice(answer);
        }
    }

    fn event(&mut self, event: ScreenEvent) {
        if self.fed.events.len() < MAX_EVENTS {
            self.fed.events.push(event);
        }
    }

    /// The approximate heap memory in bytes, for reports.
    pub fn heap(&self) -> usize {
        self.buf.heap()
            + self.other.heap()
            + self.styles.heap()
            + self.clusters.heap()
            + self.links.heap()
            + self.parser.string.data.capacity()
    }
}
