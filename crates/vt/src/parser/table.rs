//! The transition table of the parser: the well-known VT500 state machine with the small
//! differences of xterm.js, which matter because a browser parses the same bytes.

pub(crate) const GROUND: u8 = 0;
pub(crate) const ESCAPE: u8 = 1;
pub(crate) const ESCAPE_INTERMEDIATE: u8 = 2;
pub(crate) const CSI_ENTRY: u8 = 3;
pub(crate) const CSI_PARAM: u8 = 4;
pub(crate) const CSI_INTERMEDIATE: u8 = 5;
pub(crate) const CSI_IGNORE: u8 = 6;
pub(crate) const STRING: u8 = 7;
pub(crate) const OSC: u8 = 8;
pub(crate) const DCS_ENTRY: u8 = 9;
pub(crate) const DCS_PARAM: u8 = 10;
pub(crate) const DCS_IGNORE: u8 = 11;
pub(crate) const DCS_INTERMEDIATE: u8 = 12;
pub(crate) const DCS_PASSTHROUGH: u8 = 13;
const STATES: usize = 14;

pub(crate) const IGNORE: u8 = 0;
pub(crate) const PRINT: u8 = 1;
pub(crate) const EXECUTE: u8 = 2;
pub(crate) const CLEAR: u8 = 3;
pub(crate) const COLLECT: u8 = 4;
pub(crate) const PARAM: u8 = 5;
pub(crate) const ESC_DISPATCH: u8 = 6;
pub(crate) const CSI_DISPATCH: u8 = 7;
pub(crate) const OSC_START: u8 = 8;
pub(crate) const OSC_PUT: u8 = 9;
pub(crate) const OSC_END: u8 = 10;
pub(crate) const DCS_HOOK: u8 = 11;
pub(crate) const DCS_PUT: u8 = 12;
pub(crate) const DCS_UNHOOK: u8 = 13;

/// All printable characters above C1 share the last column.
const CODES: usize = 0xa1;

static TABLE: [[u8; CODES]; STATES] = build();

/// Returns the action for `code` in `state`, and the next state.
#[inline]
pub(crate) fn transition(state: u8, code: u32) -> (u8, u8) {
    let entry = TABLE[state as usize][(code as usize).min(CODES - 1)];
    (entry >> 4, entry & 15)
}

type Table = [[u8; CODES]; STATES];

const fn set(t: &mut Table, state: u8, from: usize, to: usize, action: u8, next: u8) {
    let mut code = from;
    while code <= to {
        t[state as usize][code] = action << 4 | next;
        code += 1;
    }
}

/// Sets the C0 controls except CAN, SUB and ESC.
const fn controls(t: &mut Table, state: u8, action: u8) {
    set(t, state, 0x00, 0x17, action, state);
    set(t, state, 0x19, 0x19, action, state);
    set(t, state, 0x1c, 0x1f, action, state);
}

const fn build() -> Table {
    // A byte without a transition is ignored and returns to the ground state.
    let mut table = [[IGNORE << 4 | GROUND; CODES]; STATES];
    let t = &mut table;
    let mut s = 0;
    while s < STATES as u8 {
        set(t, s, 0x80, 0x9a, EXECUTE, GROUND);
        set(t, s, 0x18, 0x18, EXECUTE, GROUND);
        set(t, s, 0x1a, 0x1a, EXECUTE, GROUND);
        set(t, s, 0x9c, 0x9c, IGNORE, GROUND);
        set(t, s, 0x1b, 0x1b, CLEAR, ESCAPE);
        set(t, s, 0x9d, 0x9d, OSC_START, OSC);
        set(t, s, 0x98, 0x98, IGNORE, STRING);
        set(t, s, 0x9e, 0x9f, IGNORE, STRING);
        set(t, s, 0x9b, 0x9b, CLEAR, CSI_ENTRY);
        set(t, s, 0x90, 0x90, CLEAR, DCS_ENTRY);
        s += 1;
    }
    set(t, GROUND, 0x20, 0x7e, PRINT, GROUND);
    set(t, GROUND, 0xa0, 0xa0, PRINT, GROUND);
    controls(t, GROUND, EXECUTE);
    escapes(t);
    csi(t);
    dcs(t);
    controls(t, OSC, IGNORE);
    set(t, OSC, 0x20, 0x7f, OSC_PUT, OSC);
    set(t, OSC, 0xa0, 0xa0, OSC_PUT, OSC);
    set(t, OSC, 0x9c, 0x9c, OSC_END, GROUND);
    set(t, OSC, 0x1b, 0x1b, OSC_END, GROUND);
    set(t, OSC, 0x18, 0x18, OSC_END, GROUND);
    set(t, OSC, 0x1a, 0x1a, OSC_END, GROUND);
    set(t, OSC, 0x07, 0x07, OSC_END, GROUND);
    controls(t, STRING, IGNORE);
    set(t, STRING, 0x20, 0x7f, IGNORE, STRING);
    table
}

const fn escapes(t: &mut Table) {
    controls(t, ESCAPE, EXECUTE);
    set(t, ESCAPE, 0x7f, 0x7f, IGNORE, ESCAPE);
    set(t, ESCAPE, 0x30, 0x7e, ESC_DISPATCH, GROUND);
    set(t, ESCAPE, b'[' as usize, b'[' as usize, CLEAR, CSI_ENTRY);
    set(t, ESCAPE, b']' as usize, b']' as usize, OSC_START, OSC);
    set(t, ESCAPE, b'P' as usize, b'P' as usize, CLEAR, DCS_ENTRY);
    set(t, ESCAPE, b'X' as usize, b'X' as usize, IGNORE, STRING);
    set(t, ESCAPE, b'^' as usize, b'_' as usize, IGNORE, STRING);
    set(t, ESCAPE, 0x20, 0x2f, COLLECT, ESCAPE_INTERMEDIATE);
    controls(t, ESCAPE_INTERMEDIATE, EXECUTE);
    set(t, ESCAPE_INTERMEDIATE, 0x7f, 0x7f, IGNORE, ESCAPE_INTERMEDIATE);
    set(t, ESCAPE_INTERMEDIATE, 0x20, 0x2f, COLLECT, ESCAPE_INTERMEDIATE);
    set(t, ESCAPE_INTERMEDIATE, 0x30, 0x7e, ESC_DISPATCH, GROUND);
}

const fn csi(t: &mut Table) {
    controls(t, CSI_ENTRY, EXECUTE);
    set(t, CSI_ENTRY, 0x7f, 0x7f, IGNORE, CSI_ENTRY);
    set(t, CSI_ENTRY, 0x20, 0x2f, COLLECT, CSI_INTERMEDIATE);
    set(t, CSI_ENTRY, 0x30, 0x3b, PARAM, CSI_PARAM);
    set(t, CSI_ENTRY, 0x3c, 0x3f, COLLECT, CSI_PARAM);
    set(t, CSI_ENTRY, 0x40, 0x7e, CSI_DISPATCH, GROUND);
    controls(t, CSI_PARAM, EXECUTE);
    set(t, CSI_PARAM, 0x7f, 0x7f, IGNORE, CSI_PARAM);
    set(t, CSI_PARAM, 0x20, 0x2f, COLLECT, CSI_INTERMEDIATE);
    set(t, CSI_PARAM, 0x30, 0x3b, PARAM, CSI_PARAM);
    set(t, CSI_PARAM, 0x3c, 0x3f, IGNORE, CSI_IGNORE);
    set(t, CSI_PARAM, 0x40, 0x7e, CSI_DISPATCH, GROUND);
    controls(t, CSI_INTERMEDIATE, EXECUTE);
    set(t, CSI_INTERMEDIATE, 0x7f, 0x7f, IGNORE, CSI_INTERMEDIATE);
    set(t, CSI_INTERMEDIATE, 0x20, 0x2f, COLLECT, CSI_INTERMEDIATE);
    set(t, CSI_INTERMEDIATE, 0x30, 0x3f, IGNORE, CSI_IGNORE);
    set(t, CSI_INTERMEDIATE, 0x40, 0x7e, CSI_DISPATCH, GROUND);
    controls(t, CSI_IGNORE, EXECUTE);
    set(t, CSI_IGNORE, 0x20, 0x3f, IGNORE, CSI_IGNORE);
    set(t, CSI_IGNORE, 0x7f, 0x7f, IGNORE, CSI_IGNORE);
    set(t, CSI_IGNORE, 0x40, 0x7e, IGNORE, GROUND);
    set(t, CSI_IGNORE, 0xa0, 0xa0, IGNORE, CSI_IGNORE);
}

const fn dcs(t: &mut Table) {
    controls(t, DCS_ENTRY, IGNORE);
    set(t, DCS_ENTRY, 0x7f, 0x7f, IGNORE, DCS_ENTRY);
    set(t, DCS_ENTRY, 0x20, 0x2f, COLLECT, DCS_INTERMEDIATE);
    set(t, DCS_ENTRY, 0x30, 0x3b, PARAM, DCS_PARAM);
    set(t, DCS_ENTRY, 0x3c, 0x3f, COLLECT, DCS_PARAM);
    set(t, DCS_ENTRY, 0x40, 0x7e, DCS_HOOK, DCS_PASSTHROUGH);
    controls(t, DCS_PARAM, IGNORE);
    set(t, DCS_PARAM, 0x7f, 0x7f, IGNORE, DCS_PARAM);
    set(t, DCS_PARAM, 0x20, 0x2f, COLLECT, DCS_INTERMEDIATE);
    set(t, DCS_PARAM, 0x30, 0x3b, PARAM, DCS_PARAM);
    set(t, DCS_PARAM, 0x3c, 0x3f, IGNORE, DCS_IGNORE);
    set(t, DCS_PARAM, 0x40, 0x7e, DCS_HOOK, DCS_PASSTHROUGH);
    controls(t, DCS_INTERMEDIATE, IGNORE);
    set(t, DCS_INTERMEDIATE, 0x7f, 0x7f, IGNORE, DCS_INTERMEDIATE);
    set(t, DCS_INTERMEDIATE, 0x20, 0x2f, COLLECT, DCS_INTERMEDIATE);
    set(t, DCS_INTERMEDIATE, 0x30, 0x3f, IGNORE, DCS_IGNORE);
    set(t, DCS_INTERMEDIATE, 0x40, 0x7e, DCS_HOOK, DCS_PASSTHROUGH);
    controls(t, DCS_IGNORE, IGNORE);
    set(t, DCS_IGNORE, 0x20, 0x7f, IGNORE, DCS_IGNORE);
    set(t, DCS_IGNORE, 0xa0, 0xa0, IGNORE, DCS_IGNORE);
    controls(t, DCS_PASSTHROUGH, DCS_PUT);
    set(t, DCS_PASSTHROUGH, 0x20, 0x7e, DCS_PUT, DCS_PASSTHROUGH);
    set(t, DCS_PASSTHROUGH, 0x7f, 0x7f, IGNORE, DCS_PASSTHROUGH);
    set(t, DCS_PASSTHROUGH, 0xa0, 0xa0, DCS_PUT, DCS_PASSTHROUGH);
    set(t, DCS_PASSTHROUGH, 0x1b, 0x1b, DCS_UNHOOK, GROUND);
    set(t, DCS_PASSTHROUGH, 0x9c, 0x9c, DCS_UNHOOK, GROUND);
    set(t, DCS_PASSTHROUGH, 0x18, 0x18, DCS_UNHOOK, GROUND);
    set(t, DCS_PASSTHROUGH, 0x1a, 0x1a, DCS_UNHOOK, GROUND);
}
