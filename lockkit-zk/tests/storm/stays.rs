//! What was really held, and when, checked after the fact.
//!
//! A stay counts from after the grant was handed out to before the last `is_held()` that said true. So two stays that
//! overlap prove a violation, however late this process itself was scheduled.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use lockkit_core::{FencingToken, Kind};

use crate::user::PERMITS;

/// How much of a lock a grant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Alone,
    Shared,
    Permits(u32),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stay {
    pub(crate) token: FencingToken,
    pub(crate) share: Share,
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Stays(Mutex<HashMap<(Kind, u64), Vec<Stay>>>);

impl Stays {
    pub(crate) fn record(&self, name: (Kind, u64), stay: Stay) {
        let mut stays = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stays.entry(name).or_default().push(stay);
    }

    /// Panics at the first violation. Returns how many stays there were.
    pub(crate) fn verify(&self) -> usize {
        let stays = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, stays) in &*stays {
            if let Err(violation) = verify(stays.clone()) {
                panic!("{name:?}: {violation}");
            }
        }
        stays.values().map(Vec::len).sum()
    }
}

fn verify(mut stays: Vec<Stay>) -> Result<(), String> {
    stays.sort_by_key(|stay| stay.token);
    // The last end of what excludes a reader, and of what excludes a writer.
    let (mut writers, mut all): (Option<Stay>, Option<Stay>) = (None, None);
    let mut last: Option<Stay> = None;
    for &stay in &stays {
        if last.is_some_and(|last| last.token == stay.token) {
            return Err(format!("C4: two grants share token {}", stay.token));
        }
        last = Some(stay);
        let excluded_by = match stay.share {
            Share::Alone => all,
            Share::Shared => writers,
            Share::Permits(_) => None,
        };
        if let Some(earlier) = excluded_by.filter(|earlier| earlier.until > stay.from) {
            return Err(format!(
                "C1 or C4: the holder of token {} was in for {:?} after token {} was granted",
                earlier.token,
                earlier.until - stay.from,
                stay.token
            ));
        }
        let later = |known: Option<Stay>| known.filter(|known| known.until > stay.until).or(Some(stay));
        all = later(all);
        if stay.share == Share::Alone {
            writers = later(writers);
        }
    }
    permits(&stays)
}

/// At no instant more permits than there are.
fn permits(stays: &[Stay]) -> Result<(), String> {
    let mut steps = Vec::new();
    for stay in stays {
        if let Share::Permits(count) = stay.share {
            // Where one ends as another begins, the end counts first.
            steps.push((stay.until, 0, i64::from(count)));
            steps.push((stay.from, 1, i64::from(count)));
        }
    }
    // A stay without length would end before it begins.
    steps.sort_unstable();
    let mut taken = 0;
    for (_, begins, count) in steps {
        taken += if begins == 1 { count } else { -count };
        if taken > i64::from(PERMITS) {
            return Err(format!("C1: {taken} of {PERMITS} permits were held"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn found(stays: &[(u64, Share, u64, u64)]) -> Result<(), String> {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let stay = |&(token, share, from, until): &(u64, Share, u64, u64)| Stay {
            token: FencingToken::new(token),
            share,
            from: at(from),
            until: at(until),
        };
        verify(stays.iter().map(stay).collect())
    }

    #[test]
    fn what_is_allowed_is_not_reported() {
        use Share::{Alone, Permits, Shared};
        assert_eq!(found(&[(9, Alone, 30, 40), (3, Alone, 0, 10), (5, Alone, 10, 30)]), Ok(()));
        assert_eq!(
            found(&[(1, Shared, 0, 20), (2, Shared, 5, 30), (3, Alone, 30, 40), (4, Shared, 40, 50)]),
            Ok(())
        );
        assert_eq!(found(&[(1, Permits(2), 0, 20), (2, Permits(1), 5, 30), (3, Permits(2), 20, 40)]), Ok(()));
    }

    #[test]
    fn c1_c4_what_is_not_allowed_is_seen() {
        use Share::{Alone, Permits, Shared};
        for wrong in [
            &[(1, Alone, 0, 11), (2, Alone, 10, 20)][..],
            &[(1, Alone, 0, 5), (1, Alone, 10, 20)],
            &[(2, Alone, 0, 5), (1, Alone, 10, 20)],
            &[(1, Shared, 0, 50), (2, Shared, 5, 10), (3, Alone, 30, 40)],
            &[(1, Alone, 0, 50), (2, Shared, 30, 40)],
            &[(1, Permits(2), 0, 21), (2, Permits(1), 5, 30), (3, Permits(1), 20, 40)],
        ] {
            assert!(found(wrong).is_err(), "{wrong:?}");
        }
    }
}
