//! Safe window operations: sizes in characters, and the title stack. Titles are never reported,
//! since they could contain any text. Sizes in pixels (`CSI 14 t`, `CSI 16 t`) are not reported, because
//! several clients with cells of different sizes may show one screen.

use super::Screen;

const MAX_TITLES: usize = 10;

impl Screen {
    pub(super) fn window(&mut self) {
        let params = &self.parser.params;
        let (operation, which) = (params.get(0), params.get(1));
        match operation {
            11 => self.reply(b"\x1b[1t"),
            13 => self.reply(b"\x1b[3;0;0t"),
            18 => self.reply(format!("\x1b[8;{};{}t", self.rows, self.cols).as_bytes()),
            19 => self.reply(format!("\x1b[9;{};{}t", self.rows, self.cols).as_bytes()),
            20 => self.reply(b"\x1b]L\x1b\\"),
            21 => self.reply(b"\x1b]l\x1b\\"),
            22 => self.push_titles(which),
            23 => self.pop_titles(which),
            _ => {}
        }
    }

    fn push_titles(&mut self, which: i32) {
        if matches!(which, 0 | 2) {
            push(&mut self.titles, &self.title);
        }
        if matches!(which, 0 | 1) {
            push(&mut self.icons, &self.icon);
        }
    }

    fn pop_titles(&mut self, which: i32) {
        if matches!(which, 0 | 2)
            && let Some(title) = self.titles.pop()
        {
            self.set_title(title);
        }
        if matches!(which, 0 | 1)
            && let Some(icon) = self.icons.pop()
        {
            self.icon = icon;
        }
    }
}

fn push(stack: &mut Vec<String>, text: &str) {
    if stack.len() >= MAX_TITLES {
        stack.remove(0);
    }
    stack.push(text.to_owned());
}
