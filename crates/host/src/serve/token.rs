//! The source of an event of the loop.

use rustix::event::epoll::EventData;

use super::slots::Key;

/// The source of an event, stored as a number in the epoll set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventToken {
    Listener,
    Signals,
    Connection(Key),
    Terminal(Key),
    /// The records that shells leave for their drivers.
    Records,
    Driver(Key),
}

impl EventToken {
    pub(super) fn data(self) -> EventData {
        let (kind, key) = match self {
            Self::Listener => (0u64, 0),
            Self::Signals => (1, 0),
            Self::Connection(key) => (2, key.to_bits()),
            Self::Terminal(key) => (3, key.to_bits()),
            Self::Records => (4, 0),
            Self::Driver(key) => (5, key.to_bits()),
        };
        EventData::new_u64(kind << 56 | key)
    }

    pub(super) fn of(data: EventData) -> Self {
        let bits = data.u64();
        match bits >> 56 {
            0 => Self::Listener,
            1 => Self::Signals,
            2 => Self::Connection(Key::from_bits(bits)),
            4 => Self::Records,
            5 => Self::Driver(Key::from_bits(bits)),
            _ => Self::Terminal(Key::from_bits(bits)),
        }
    }
}
