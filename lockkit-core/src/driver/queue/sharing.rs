//! Who can have a name at the same time.

use crate::spi::Mode;

/// Whether a claim of this mode finds room beside these others of the same name.
pub(super) fn fits(mode: Mode, mut others: impl Iterator<Item = Mode>) -> bool {
    match mode {
        Mode::Exclusive => others.next().is_none(),
        Mode::Shared => others.all(|other| other == Mode::Shared),
        Mode::Permits { count, limit } => {
            let limit = u64::from(limit.get());
            let taken = |other| match other {
                Mode::Permits { count, .. } => u64::from(count.get()),
                Mode::Exclusive | Mode::Shared => limit,
            };
            others.map(taken).sum::<u64>() + u64::from(count.get()) <= limit
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn permits(count: u32, limit: u32) -> Mode {
        let count = NonZeroU32::new(count).unwrap();
        let limit = NonZeroU32::new(limit).unwrap();
        Mode::Permits { count, limit }
    }

    #[test]
    fn c1_readers_fit_together_and_a_writer_fits_with_nobody() {
        let reader = Mode::Shared;
        let writer = Mode::Exclusive;
        let cases: [(Mode, &[Mode], bool); 7] = [
            (writer, &[], true),
            (writer, &[reader], false),
            (writer, &[writer], false),
            (reader, &[], true),
            (reader, &[reader, reader], true),
            (reader, &[writer], false),
            (reader, &[reader, writer], false),
        ];
        for (mode, others, expected) in cases {
            assert_eq!(fits(mode, others.iter().copied()), expected, "{mode:?} beside {others:?}");
        }
    }

    #[test]
    fn c1_permits_fit_up_to_their_limit() {
        for (count, taken, expected) in [(1, 2, true), (1, 3, false), (3, 0, true), (2, 2, false)] {
            let others = (0..taken).map(|_| permits(1, 3));
            assert_eq!(fits(permits(count, 3), others), expected, "{count} beside {taken} of 3");
        }
        let most = permits(u32::MAX, u32::MAX);
        assert!(!fits(most, [most; 3].into_iter()), "the sum does not overflow");
    }
}
