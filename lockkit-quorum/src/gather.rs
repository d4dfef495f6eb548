//! Asks all members for something that changes nothing, and waits no longer than necessary.

use std::time::Duration;

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use lockkit_core::{Error, ErrorKind, Result};
use tokio::time;

/// How long to wait for the others once enough have answered. A backend does not know the bound of
/// such a call.
const STRAGGLERS: Duration = Duration::from_millis(200);

/// The answer of each member, or `None` for a member that has not answered.
pub(crate) type Answers<T> = Vec<Option<Result<T>>>;

/// Asks until all members have answered, or `settled` says that the other answers make no
/// difference. Once `least` members have answered, waits only a little longer for the others.
pub(crate) async fn gather<T>(
    requests: Vec<BoxFuture<'_, Result<T>>>,
    least: usize,
    settled: impl Fn(&Answers<T>) -> bool,
) -> Answers<T> {
    let mut answers: Answers<T> = requests.iter().map(|_| None).collect();
    let asked = requests
        .into_iter()
        .enumerate()
        .map(|(place, request)| async move { (place, request.await) });
    let mut asked: FuturesUnordered<_> = asked.collect();
    let mut timer = None;
    loop {
        let next = match &mut timer {
            None => asked.next().await,
            Some(timer) => tokio::select! {
                biased;
                next = asked.next() => next,
                () = timer => None,
            },
        };
        let Some((place, answer)) = next else { return answers };
        answers[place] = Some(answer);
        if settled(&answers) {
            return answers;
        }
        if timer.is_none() && good(&answers).count() >= least {
            timer = Some(Box::pin(time::sleep(STRAGGLERS)));
        }
    }
}

/// The answers that are not errors, with the places of their members.
pub(crate) fn good<T>(answers: &Answers<T>) -> impl Iterator<Item = (usize, &T)> {
    let answers = answers.iter().enumerate();
    answers.filter_map(|(place, answer)| Some((place, answer.as_ref()?.as_ref().ok()?)))
}

/// The error when too few members have answered, or `None` if enough have.
pub(crate) fn too_few<'a, T>(
    answers: &Answers<T>,
    need: usize,
    label: impl Fn(usize) -> &'a str,
) -> Option<Error> {
    let count = good(answers).count();
    if count >= need {
        return None;
    }
    let reasons = silent(answers, label).join("; ");
    let text =
        format!("{count} of {} members answered, {need} are needed: {reasons}", answers.len());
    Some(Error::new(ErrorKind::Unavailable, text))
}

/// The reason why each of the other members has no answer.
pub(crate) fn silent<'a, T>(answers: &Answers<T>, label: impl Fn(usize) -> &'a str) -> Vec<String> {
    let reasons = answers.iter().enumerate().filter_map(|(place, answer)| match answer {
        Some(Ok(_)) => None,
        Some(Err(error)) => Some(format!("{}: {}", label(place), error.context())),
        None => Some(format!("{}: no answer in time", label(place))),
    });
    reasons.collect()
}
