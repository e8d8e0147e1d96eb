//! The user ids of directories that sandboxes write to and that are also directories of the machine, such as
//! workspaces and volumes.
//!
//! A directory that root in a sandbox may write to has a range of user ids that no account of the machine has.
//! User N inside owns files as the N-th user of the range, so a set-user-id file of any user
//! inside gives no process on the machine the rights of an account. The range of a directory is known by its owner.

/// The number of users in a range.
pub const USERS: u32 = 65_536;

/// The first user of the first range. The users of running sandboxes are below.
const FIRST: u32 = 0xc000_0000;

/// The number of ranges. The last 65,536 numbers are not used: some have a meaning of their own.
const RANGES: u32 = 0x3fff;

/// A range of the machine's user ids, which are also group ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedUsers {
    first: u32,
}

impl SharedUsers {
    /// The range that a user belongs to.
    #[must_use]
    pub fn of(user: u32) -> Option<Self> {
        let range = user.checked_sub(FIRST)? / USERS;
        (range < RANGES).then(|| Self { first: FIRST + range * USERS })
    }

    /// The range for a directory of this name. Two directories have the same range only by chance, which
    /// matters little: neither can be reached from the other.
    #[must_use]
    pub fn for_name(name: &[u8]) -> Self {
        // FNV-1a.
        let hash = name.iter().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        });
        Self { first: FIRST + hash % RANGES * USERS }
    }

    /// User 0 of a sandbox on the machine.
    #[must_use]
    pub fn first(self) -> u32 {
        self.first
    }

    /// The machine's number of a user of this or another range, or of a user by a plain number. All others
    /// become user 0 of the sandbox.
    #[must_use]
    pub fn adopt(self, user: u32) -> u32 {
        let inside = inside(user);
        if inside < USERS { self.first + inside } else { self.first }
    }
}

/// The number that a user of a range has in sandboxes; other numbers stay as they are.
#[must_use]
pub fn inside(user: u32) -> u32 {
    SharedUsers::of(user).map_or(user, |range| user - range.first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_known_by_any_of_its_users() {
        for name in ["a", "b", "", "workspaces/default-00000000/repo"] {
            let range = SharedUsers::for_name(name.as_bytes());
            for user in [0, 1, 1000, USERS - 1] {
                let outside = range.adopt(user);
                assert_eq!(SharedUsers::of(outside), Some(range));
                assert_eq!(inside(outside), user);
                assert_eq!(range.adopt(outside), outside);
            }
        }
    }

    #[test]
    fn accounts_and_running_sandboxes_are_in_no_range() {
        for user in [0, 1000, 65_535, 0x4000_0000, 0xbfff_ffff, 0xffff_fffe, u32::MAX] {
            assert_eq!(SharedUsers::of(user), None, "{user:#x}");
            assert_eq!(inside(user), user);
        }
        let range = SharedUsers::for_name(b"x");
        assert_eq!(range.adopt(0x4000_0000), range.first());
    }
}
