//! Key encoding: the stacks of the kitty keyboard protocol, and modifyOtherKeys. The screen only
//! stores these settings; the client that sends the keys applies them.
/// A push onto a full stack drops the oldest entry.
const MAX_DEPTH: usize = 16;
const SUPPORTED_FLAGS: u8 = 0x1f;

/// Keyboard flags of both buffers. The last entry of each stack is active.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct KeyboardFlags {
    pub normal: Vec<u8>,
    pub alternate: Vec<u8>,
    pub modify_other_keys: u8,
}

impl KeyboardFlags {
    pub fn stack(&mut self, alternate: bool) -> &mut Vec<u8> {
        if alternate { &mut self.alternate } else { &mut self.normal }
    }

    pub fn push(&mut self, alternate: bool, flags: i32) {
        let stack = self.stack(alternate);
        if stack.is_empty() {
            stack.push(0);
        }
        if stack.len() >= MAX_DEPTH {
            stack.remove(0);
        }
        stack.push(flags as u8 & SUPPORTED_FLAGS);
    }

    pub fn pop(&mut self, alternate: bool, count: usize) {
        let stack = self.stack(alternate);
        stack.truncate(stack.len().saturating_sub(count));
        if stack.iter().all(|flags| *flags == 0) && stack.len() < 2 {
            stack.clear();
        }
    }

    pub fn set(&mut self, alternate: bool, flags: i32, mode: i32) {
        let flags = flags as u8 & SUPPORTED_FLAGS;
        let stack = self.stack(alternate);
        let old = stack.last().copied().unwrap_or(0);
        let new = match mode {
            0 | 1 => flags,
            2 => old | flags,
            3 => old & !flags,
            _ => return,
        };
        match stack.last_mut() {
            Some(last) => *last = new,
            None => stack.push(new),
        }
    }
}
