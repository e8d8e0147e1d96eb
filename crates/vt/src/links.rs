//! Hyperlinks (OSC 8) by number, within a fixed memory budget.

use std::collections::HashMap;

/// The memory of all hyperlinks together. Once it is used up, further links are plain text.
const BUDGET_BYTES: usize = 4 << 20;
/// A link with a longer URI and id becomes plain text.
const MAX_LINK_BYTES: usize = 8 * 1024;
const MIN_SWEEP_COUNT: usize = 1024;

/// The target of a hyperlink, and the id that groups its cells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    pub id: Option<Box<str>>,
    pub uri: Box<str>,
}

/// Links by number, starting at 1. The number of a link in use never changes.
#[derive(Clone, Default)]
pub(crate) struct Links {
    list: Vec<Option<Link>>,
    numbers: HashMap<Link, u32>,
    free: Vec<u32>,
    bytes: usize,
    used: usize,
    limit: usize,
}

impl Links {
    pub fn get(&self, number: u32) -> Option<&Link> {
        self.list.get((number as usize).checked_sub(1)?)?.as_ref()
    }

    /// Returns the number of a link, which is the same every time the link is opened, or 0 if there
    /// is no room.
    pub fn number(&mut self, id: Option<&str>, uri: &str) -> u32 {
        let link = Link { id: id.map(Into::into), uri: uri.into() };
        if let Some(&number) = self.numbers.get(&link) {
            return number;
        }
        let size = link.size();
        if size > MAX_LINK_BYTES || self.bytes + size > BUDGET_BYTES {
            return 0;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.list.push(None);
            self.list.len() as u32
        });
        self.put(number, link);
        number
    }

    /// Stores a link under the given number.
    pub fn put(&mut self, number: u32, link: Link) {
        while self.list.len() < number as usize {
            self.list.push(None);
            if self.list.len() < number as usize {
                self.free.push(self.list.len() as u32);
            }
        }
        self.bytes += link.size();
        self.used += 1;
        self.numbers.insert(link.clone(), number);
        self.list[number as usize - 1] = Some(link);
    }

    pub fn wants_sweep(&self) -> bool {
        self.used >= self.limit.max(MIN_SWEEP_COUNT)
            || self.bytes > BUDGET_BYTES / 2 && self.limit == 0
    }

    pub fn highest(&self) -> usize {
        self.list.len()
    }

    /// Removes every link whose mark is not set.
    pub fn sweep(&mut self, marks: &[bool]) {
        for (i, slot) in self.list.iter_mut().enumerate() {
            if marks.get(i + 1).copied().unwrap_or(false) {
                continue;
            }
            if let Some(link) = slot.take() {
                self.bytes -= link.size();
                self.used -= 1;
                self.numbers.remove(&link);
                self.free.push(i as u32 + 1);
            }
        }
        self.limit = self.used * 2;
    }

    pub fn heap(&self) -> usize {
        self.bytes * 2 + self.list.capacity() * size_of::<Option<Link>>()
    }

    pub fn live(&self) -> impl Iterator<Item = (u32, &Link)> {
        self.list.iter().enumerate().filter_map(|(i, l)| l.as_ref().map(|l| (i as u32 + 1, l)))
    }
}

impl Link {
    fn size(&self) -> usize {
        self.uri.len() + self.id.as_ref().map_or(0, |id| id.len()) + 64
    }
}
