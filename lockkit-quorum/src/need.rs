//! How many members a grant needs.

use std::fmt;

/// How many members must grant a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Need {
    /// All members: a lock over several stores. One member that is down stops it.
    All,
    /// More than half of the members: the lock survives the loss of the others.
    #[default]
    Majority,
}

impl Need {
    pub(crate) const fn of(self, members: usize) -> usize {
        match self {
            Self::All => members,
            Self::Majority => members / 2 + 1,
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::Majority => "majority",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c1_any_two_quorums_have_a_member_in_common() {
        for members in 1..20 {
            for need in [Need::All, Need::Majority] {
                let need = need.of(members);
                assert!(need <= members && 2 * need > members, "{need} of {members}");
            }
        }
        assert_eq!([1, 2, 3, 4, 5].map(|members| Need::Majority.of(members)), [1, 2, 2, 3, 3]);
    }
}
