//! Records when locks were held, and checks it afterwards.
//!
//! A grant counts from *after* its call returned. It counts to *before* the release was sent, or
//! before the last `is_held()` that returned true. Without such an answer it excludes no other,
//! because its lease may have ended before its call returned. So two intervals that overlap prove a
//! violation, however late the system ran this process.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use lockkit_core::{FencingToken, Hold, spi::Mode};

/// The holds of one name.
#[derive(Debug, Default)]
pub struct Witness(Mutex<Vec<Stay>>);

/// One grant, as its holder saw it.
#[derive(Clone, Copy, Debug)]
pub struct Stay {
    /// The token of the grant.
    pub token: FencingToken,
    /// The mode of the grant.
    pub mode: Mode,
    /// When its holder asked for it, if that is known.
    pub asked: Option<Instant>,
    /// When its holder had it for certain.
    pub from: Instant,
    /// When its holder last had it for certain.
    pub until: Instant,
}

impl Stay {
    /// A stay for a hold that has just begun.
    pub fn begin(hold: &Hold) -> Self {
        let now = Instant::now();
        Self { token: hold.fencing_token(), mode: hold.mode(), asked: None, from: now, until: now }
    }

    /// Extends the stay if the lock is still held; returns whether it is.
    pub fn look(&mut self, hold: &Hold) -> bool {
        let now = Instant::now();
        let held = hold.is_held();
        if held {
            self.until = now;
        }
        held
    }

    /// Whether the stay excludes all others, readers and other permits as well.
    fn is_alone(&self) -> bool {
        match self.mode {
            Mode::Exclusive => true,
            Mode::Permits { count, limit } => count == limit,
            _ => false,
        }
    }
}

impl Witness {
    /// Records a stay that has ended.
    pub fn record(&self, stay: Stay) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(stay);
    }

    /// How many stays were recorded so far.
    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns how many stays there were.
    ///
    /// # Panics
    /// Two stays overlapped that exclude each other, or the later of two such stays had no larger
    /// token. Or at some instant more permits were held than the limit.
    pub fn verify(&self) -> usize {
        let stays = self.verify_tokens();
        // The stays with the last ends so far: of all stays, and of those that exclude readers as
        // well.
        let (mut last, mut last_alone): (Option<Stay>, Option<Stay>) = (None, None);
        for stay in &stays {
            let excluded_by = if stay.is_alone() { last } else { last_alone };
            if let Some(earlier) = excluded_by.filter(|earlier| earlier.until > stay.from) {
                panic!(
                    "C1 or C4: the holder of token {} was in for {:?} after token {} was granted",
                    earlier.token,
                    earlier.until - stay.from,
                    stay.token
                );
            }
            if stay.until == stay.from {
                continue;
            }
            let later = |known: Option<Stay>| {
                known.filter(|known| known.until > stay.until).or(Some(*stay))
            };
            last = later(last);
            if stay.is_alone() {
                last_alone = later(last_alone);
            }
        }
        verify_permits(&stays);
        stays.len()
    }

    /// Returns the stays by their tokens. While the store may free locks early, only these checks
    /// of [`verify`](Self::verify) remain.
    ///
    /// # Panics
    /// Two stays share a token, or a stay was asked for when another with a larger token existed
    /// already.
    pub fn verify_tokens(&self) -> Vec<Stay> {
        let mut stays = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        stays.sort_by_key(|stay| stay.token);
        for pair in stays.windows(2) {
            let [earlier, later] = pair else { continue };
            assert!(earlier.token < later.token, "C4: two grants share token {}", later.token);
        }
        // The first start among the stays with larger tokens.
        let mut first: Option<Stay> = None;
        for stay in stays.iter().rev() {
            let above = first.filter(|first| stay.asked.is_some_and(|asked| first.from < asked));
            assert!(above.is_none(), "C4: {stay:?} was asked for after {above:?}");
            first = first.filter(|first| first.from < stay.from).or(Some(*stay));
        }
        stays
    }
}

fn verify_permits(stays: &[Stay]) {
    let mut steps = Vec::new();
    for stay in stays {
        if let Mode::Permits { count, limit } = stay.mode {
            let count = i64::from(count.get());
            let limit = i64::from(limit.get());
            // Where one stay ends as another begins, the end counts first, because it is negative.
            // A stay without length counts for nothing.
            steps.push((stay.until, -count, limit));
            steps.push((stay.from, count, limit));
        }
    }
    steps.sort_unstable();
    let mut taken = 0;
    for (_, count, limit) in steps {
        taken += count;
        assert!(taken <= limit, "C1: {taken} of {limit} permits were held");
    }
}

#[cfg(test)]
mod tests {
    use std::{panic::catch_unwind, time::Duration};

    use super::*;

    const ALONE: Mode = Mode::Exclusive;
    const SHARED: Mode = Mode::Shared;

    fn permits(count: u32) -> Mode {
        Mode::Permits { count: count.try_into().unwrap(), limit: 3.try_into().unwrap() }
    }

    fn witness(stays: &[(u64, Mode, u64, u64)]) -> Witness {
        let zero = Instant::now();
        let witness = Witness::default();
        for stay in stays {
            witness.record(stay_after(zero, *stay));
        }
        witness
    }

    fn stay_after(zero: Instant, (token, mode, from, until): (u64, Mode, u64, u64)) -> Stay {
        let at = |ms| zero + Duration::from_millis(ms);
        Stay {
            token: FencingToken::new(token),
            mode,
            asked: None,
            from: at(from),
            until: at(until),
        }
    }

    #[test]
    fn allowed_histories_are_not_reported_in_any_order_of_records() {
        assert_eq!(
            witness(&[(9, ALONE, 30, 40), (3, ALONE, 0, 10), (5, ALONE, 10, 30)]).verify(),
            3
        );
        let readers =
            [(1, SHARED, 0, 20), (2, SHARED, 5, 30), (3, ALONE, 30, 40), (4, SHARED, 40, 50)];
        assert_eq!(witness(&readers).verify(), 4);
        // The holder of token 1 learned of its grant after the end of its lease.
        assert_eq!(witness(&[(1, ALONE, 25, 25), (2, ALONE, 20, 30)]).verify(), 2);
        let taken = [(1, permits(2), 0, 20), (2, permits(1), 5, 30), (3, permits(2), 20, 40)];
        assert_eq!(witness(&taken).verify(), 3);
    }

    #[test]
    fn c1_c4_each_forbidden_history_is_found() {
        for (wrong, says) in [
            (&[(3, ALONE, 0, 10), (5, ALONE, 9, 30)][..], "C1"),
            (&[(3, ALONE, 0, 10), (4, ALONE, 20, 20), (5, ALONE, 9, 30)], "C1"),
            (&[(3, ALONE, 0, 10), (3, ALONE, 20, 30)], "C4: two grants share"),
            (&[(5, ALONE, 0, 10), (3, ALONE, 20, 30)], "C1 or C4"),
            (&[(1, SHARED, 0, 50), (2, SHARED, 5, 10), (3, ALONE, 30, 40)], "C1"),
            (&[(1, ALONE, 0, 50), (2, SHARED, 30, 40)], "C1"),
            (&[(2, ALONE, 0, 10), (1, SHARED, 20, 30)], "C1 or C4"),
            (
                &[(1, permits(2), 0, 21), (2, permits(1), 5, 30), (3, permits(1), 20, 40)],
                "C1: 4 of 3",
            ),
            (&[(1, permits(3), 0, 10), (2, permits(1), 9, 30)], "C1"),
            (&[(2, permits(3), 0, 10), (1, permits(3), 20, 30)], "C1 or C4"),
        ] {
            let found = catch_unwind(|| witness(wrong).verify()).expect_err("it is not seen");
            let told = found.downcast_ref::<String>().unwrap();
            assert!(told.contains(says), "{wrong:?}: {told}");
        }
    }

    #[test]
    fn c4_a_token_below_an_earlier_one_is_reported() {
        let zero = Instant::now();
        for (asked, is_right) in [(15, true), (25, false)] {
            let witness = Witness::default();
            witness.record(stay_after(zero, (7, SHARED, 20, 30)));
            witness.record(stay_after(zero, (8, SHARED, 40, 50)));
            let asked = Some(zero + Duration::from_millis(asked));
            witness.record(Stay { asked, ..stay_after(zero, (6, SHARED, 60, 70)) });
            assert_eq!(catch_unwind(|| witness.verify_tokens()).is_ok(), is_right);
        }
    }
}
