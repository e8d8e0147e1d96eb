//! The screen: what all the bytes so far add up to.

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
pub(crate) use keyboard::Keyboard;
pub use modes::{CursorShape, Modes, MouseEncoding, MouseMode};
pub use osc::Mark;
pub(crate) use osc::{Colors, default_color, wanted as wanted_osc};

const MIN_COLS: u16 = 2;
const MIN_ROWS: u16 = 1;
/// Larger screens are cut to this, which bounds what one of them can take.
const MAX_COLS: u16 = 4096;
const MAX_ROWS: u16 = 2048;
const MAX_SCROLLBACK: usize = 1_000_000;
/// The most answers and events one call to `feed` returns; what is beyond is dropped.
const REPLY_ROOM: usize = 64 * 1024;
const EVENT_ROOM: usize = 1024;

/// Columns and rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

impl Size {
    fn sane(self) -> Size {
        Size {
            cols: self.cols.clamp(MIN_COLS, MAX_COLS),
            rows: self.rows.clamp(MIN_ROWS, MAX_ROWS),
        }
    }
}

/// Where the cursor is, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// Row from the top of the screen.
    pub row: u16,
    /// Column; the last one also while a wrap is pending.
    pub col: u16,
    /// Whether the program lets it be seen.
    pub visible: bool,
}

/// What came of some bytes, beside the picture.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Fed {
    /// Answers to the program's questions, to be typed into its terminal.
    pub replies: Vec<u8>,
    /// What others may want to know.
    pub events: Vec<Event>,
}

/// Something a program said that is not on the picture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The window has a title.
    Title(String),
    /// The bell rang.
    Bell,
    /// The shell is in this directory (OSC 7, or the `Cwd` of OSC 633).
    Cwd(String),
    /// A boundary between prompt, command and output (OSC 133 and 633).
    Mark(Mark),
}

/// A terminal screen: feed it bytes, ask it for pictures.
#[derive(Clone)]
pub struct Screen {
    pub(crate) cols: usize,
    pub(crate) rows: usize,
    /// The buffer that is shown, and the other one.
    pub(crate) buf: Buffer,
    pub(crate) other: Buffer,
    pub(crate) alt: bool,

    pub(crate) pen: Style,
    /// The number of the pen, unless it changed since.
    pen_number: Option<u32>,
    pub(crate) styles: Styles,
    pub(crate) clusters: Clusters,
    pub(crate) links: Links,

    pub(crate) parser: Parser,
    pub(crate) modes: Modes,
    pub(crate) charsets: Charsets,
    pub(crate) keyboard: Keyboard,
    pub(crate) colors: Option<Box<Colors>>,

    pub(crate) title: String,
    pub(crate) icon: String,
    pub(crate) titles: Vec<String>,
    pub(crate) icons: Vec<String>,
    pub(crate) cwd: String,
    pub(crate) mark: Option<Mark>,

    /// A wrap is pending at the right margin: where the cursor stood then.
    margin_wrap: Option<(usize, usize)>,
    checksum_reports: bool,
    fed: Fed,
}

impl Screen {
    /// A blank screen that keeps up to `scrollback` lines.
    pub fn new(size: Size, scrollback: usize) -> Screen {
        let size = size.sane();
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
            keyboard: Keyboard::default(),
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

    /// Gives the screen a new size; wrapped lines of the normal buffer are laid out afresh.
    pub fn resize(&mut self, size: Size) {
        let size = size.sane();
        if size == self.size() {
            return;
        }
        let (cols, rows) = (usize::from(size.cols), usize::from(size.rows));
        (self.cols, self.rows) = (cols, rows);
        let (shown, other) =
            if self.alt { (Reflow::No, Reflow::Yes) } else { (Reflow::Yes, Reflow::No) };
        let mut names = NamesMut { styles: &mut self.styles, clusters: &mut self.clusters };
        self.buf.resize((cols, rows), shown, &mut names);
        self.other.resize((cols, rows), other, &mut names);
        self.margin_wrap = None;
        self.sweep_if_due();
    }

    /// Columns and rows.
    pub fn size(&self) -> Size {
        Size { cols: self.cols as u16, rows: self.rows as u16 }
    }

    /// Where the cursor is.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            row: self.buf.y as u16,
            col: self.buf.x.min(self.cols - 1) as u16,
            visible: !self.modes.cursor_hidden,
        }
    }

    /// The title of the window, empty when none was set.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Whether the alternate buffer is shown.
    pub fn alt_screen(&self) -> bool {
        self.alt
    }

    /// What the program asked of keyboard, mouse and display.
    pub fn modes(&self) -> &Modes {
        &self.modes
    }

    /// The directory the shell last said it was in, empty when it said none.
    pub fn cwd(&self) -> &str {
        &self.cwd
    }

    /// The last boundary the shell marked.
    pub fn mark(&self) -> Option<Mark> {
        self.mark
    }

    /// Lines that can be scrolled back to.
    pub fn scrollback(&self) -> usize {
        self.normal().scrollback.len()
    }

    /// Whether checksums of the screen are reported (DECRQCRA). They let a program
    /// read the screen, so this is for conformance runs only.
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

    /// The number of the pen.
    #[inline]
    fn pen_number(&mut self) -> u32 {
        match self.pen_number {
            Some(number) => number,
            None => {
                let number = match compact::pack(&self.pen.for_cell()) {
                    Some(number) => number,
                    None => self.unusual_pen_number(),
                };
                self.pen_number = Some(number);
                number
            }
        }
    }

    fn unusual_pen_number(&mut self) -> u32 {
        self.sweep_if_due();
        self.styles.number(self.pen.for_cell())
    }

    /// The cell an erase leaves.
    #[inline]
    fn erased(&mut self) -> Cell {
        if self.pen.bg & COLOR == 0 {
            return Cell::NULL;
        }
        Cell::null(self.styles.number(self.pen.erase()))
    }

    /// Moves the region up by one line.
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

    /// Forgets styles, clusters and links that no cell uses any more.
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
        if self.fed.replies.len() + answer.len() <= REPLY_ROOM {
            self.fed.replies.extend_from_slice(answer);
        }
    }

    fn event(&mut self, event: Event) {
        if self.fed.events.len() < EVENT_ROOM {
            self.fed.events.push(event);
        }
    }

    /// Bytes of memory in use beyond the screen's own, near enough for a report.
    pub fn heap(&self) -> usize {
        self.buf.heap()
            + self.other.heap()
            + self.styles.heap()
            + self.clusters.heap()
            + self.links.heap()
            + self.parser.string.data.capacity()
    }
}
