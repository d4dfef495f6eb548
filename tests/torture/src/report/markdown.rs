//! A verdict as Markdown.

use std::{fmt::Write as _, time::Duration};

use hdrhistogram::Histogram;

use crate::{
    check::{Figures, Verdict, Violation},
    history::{DIRECTOR, Event, Holder, Lock, Mode, Op, Outcome, REGISTER, Record, Refusal},
};

/// The verdict as a page with this title: the result in a sentence, the broken promises, the
/// documented weaknesses, and the figures.
#[must_use]
pub fn markdown(verdict: &Verdict, title: &str) -> String {
    let mut page = format!("# {title}\n\n{}\n", in_a_sentence(verdict));
    let sections = [
        ("Broken promises", &verdict.violations),
        ("Allowed by the documentation", &verdict.documented),
    ];
    for (heading, violations) in
        sections.into_iter().filter(|(_, violations)| !violations.is_empty())
    {
        _ = write!(page, "\n## {heading}\n");
        for (number, violation) in (1..).zip(violations) {
            describe(&mut page, number, violation);
        }
    }
    page.push_str(&tables(&verdict.figures));
    page
}

/// The figures, and the recovery times after each kind of fault.
pub(crate) fn tables(figures: &Figures) -> String {
    let mut page = String::new();
    self::figures(&mut page, figures);
    recoveries(&mut page, figures);
    page
}

fn in_a_sentence(verdict: &Verdict) -> String {
    let Figures { requests, grants, faults, .. } = &verdict.figures;
    let faults: u64 = faults.values().sum();
    let of = format!("{requests} requests, {grants} grants and {faults} faults");
    match &*verdict.violations {
        [] if grants == &0 => format!("**Nothing was tested**: {of}."),
        [] => format!("**The locks kept every promise** in {of}."),
        [first, ..] => {
            let mut rules: Vec<_> =
                verdict.violations.iter().map(|violation| violation.rule).collect();
            rules.sort_unstable();
            rules.dedup();
            let rules = rules.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            format!(
                "**Promises were broken** in {of}: {rules}. The first: {}.",
                escaped(&first.what)
            )
        }
    }
}

fn describe(page: &mut String, number: usize, violation: &Violation) {
    let Violation { rule, lock, what, slice, documented } = violation;
    _ = write!(page, "\n### {number}. {rule}\n\n");
    if let Some(lock) = lock {
        _ = write!(page, "{}: ", escaped(&name(lock)));
    }
    _ = writeln!(page, "{}.", escaped(what));
    if let Some(words) = documented {
        _ = write!(page, "\n> {}\n", escaped(words));
    }
    let Some(first) = slice.first() else { return };
    page.push_str("\n```text\n");
    for record in slice {
        let at = millis(i128::from(record.at) - i128::from(first.at));
        _ = writeln!(
            page,
            "{at:>12} ms  {:<9} {}",
            process(record.process),
            line(record, first.at)
        );
    }
    page.push_str("```\n");
}

fn figures(page: &mut String, figures: &Figures) {
    page.push_str("\n## Figures\n\n| | |\n|---|---:|\n");
    let rows = [
        ("requests", figures.requests),
        ("grants", figures.grants),
        ("lost holds", figures.losses),
        ("unknown outcomes", figures.unknown),
        ("failed requests", figures.failed),
        ("dropped futures and guards", figures.dropped),
        ("writes that the register accepted", figures.accepted),
        ("late writes that the register refused", figures.refused),
        ("deaths that the checker could judge", figures.takeovers),
        ("violations that the documentation allows", figures.documented),
    ];
    for (what, count) in rows {
        _ = writeln!(page, "| {what} | {count} |");
    }
    for (kind, count) in &figures.faults {
        _ = writeln!(page, "| fault {} | {count} |", escaped(kind));
    }
}

pub(crate) fn recoveries(page: &mut String, figures: &Figures) {
    if figures.recoveries.is_empty() {
        return;
    }
    page.push_str(
        "\n## Recoveries\n\nThe time to the next grant, from the end of a fault that lasts, or \
         else from the fault itself.\n\n",
    );
    page.push_str("| fault | n | p50 | p99 | max |\n|---|---:|---:|---:|---:|\n");
    for (kind, taken) in &figures.recoveries {
        let Ok(mut histogram) = Histogram::<u64>::new(3) else { continue };
        for took in taken {
            _ = histogram.record(took.as_micros().try_into().unwrap_or(u64::MAX));
        }
        let max = taken.iter().max().copied().unwrap_or_default();
        // The upper end of a bucket may be above all values in it.
        let at =
            |quantile| told(Duration::from_micros(histogram.value_at_quantile(quantile)).min(max));
        let p50 = at(0.5);
        let p99 = at(0.99);
        _ = writeln!(
            page,
            "| {} | {} | {p50} | {p99} | {} |",
            escaped(kind),
            taken.len(),
            told(max)
        );
    }
}

fn told(duration: Duration) -> String {
    format!("{} ms", millis(i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)))
}

/// Milliseconds with three places.
fn millis(nanos: i128) -> String {
    let micros = nanos / 1000;
    let sign = if micros < 0 { "-" } else { "" };
    let micros = micros.unsigned_abs();
    format!("{sign}{}.{:03}", micros / 1000, micros % 1000)
}

/// Escapes the text of a store or a test, so that it does not look like Markdown.
fn escaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' => {
                plain.extend(['\\', letter])
            }
            '\n' | '\r' => plain.push(' '),
            letter => plain.push(letter),
        }
    }
    plain
}

pub(super) fn name(lock: &Lock) -> String {
    match lock {
        Lock::Mutex(name) => format!("mutex {name}"),
        Lock::RwLock(name) => format!("read/write lock {name}"),
        Lock::Semaphore { name, limit } => format!("semaphore {name} of {limit}"),
    }
}

pub(super) fn process(number: u32) -> String {
    match number {
        REGISTER => "register".to_owned(),
        DIRECTOR => "director".to_owned(),
        number => format!("p{number}"),
    }
}

/// One record in words, with times that count from `zero`.
fn line(record: &Record, zero: u64) -> String {
    let text = in_words(&record.event, zero);
    // A fence or a line break in an error text would end the code block.
    text.replace(['\n', '\r'], " ").replace("```", "'''")
}

fn in_words(event: &Event, zero: u64) -> String {
    let from_zero = |at: u64| format!("{} ms", millis(i128::from(at) - i128::from(zero)));
    match event {
        Event::Begins { backend } => format!("begins on {backend}"),
        Event::Asks { op, lock, mode, ttl, renewal, patience, max_hold } => {
            let most =
                max_hold.map_or(String::new(), |most| format!(", held for at most {most:?}"));
            let how = mode_of(*mode);
            let lock = name(lock);
            format!(
                "{op} asks for {lock} ({how}), lease {ttl:?}, renewal {renewal:?}, patience \
                 {patience:?}{most}"
            )
        }
        Event::Granted { op, token, until, .. } => {
            format!("{op} is granted token {token} until {}", from_zero(*until))
        }
        Event::Refused { op, why } => refused(op, why),
        Event::Holds { op, until } => format!("{op} holds until {}", from_zero(*until)),
        Event::Listens { op } => format!("{op} listens for its loss"),
        Event::Told { op, reason } => format!("{op} gets its loss signal: {reason}"),
        Event::Stalled { lasted } => format!("got no processor time for {lasted:?}"),
        Event::Lost { op, reason } => {
            format!("{op} has lost the lock: {}", reason.as_deref().unwrap_or("no reason given"))
        }
        Event::Renews { op, lease: Some(lease) } => format!("{op} renews for {lease:?}"),
        Event::Renews { op, lease: None } => format!("{op} renews"),
        Event::Renewed { op, error } => {
            format!("{op} ends its renewal: {}", error.as_deref().unwrap_or("done"))
        }
        Event::Releases { op } => format!("{op} begins to release"),
        Event::Released { op, outcome } => released(op, outcome),
        Event::Writes { op, careless: true } => {
            format!("{op} writes without a check that it holds")
        }
        Event::Writes { op, careless: false } => format!("{op} writes"),
        Event::Written { op, accepted } => {
            format!("{op} learns that its write was {}", accepted_or_refused(*accepted))
        }
        Event::Compared { op, token, largest, accepted, .. } => {
            format!(
                "{op} writes with token {token}; the largest token is {largest}; {}",
                accepted_or_refused(*accepted)
            )
        }
        Event::Seen { answered, holders, waiters, .. } => {
            format!("looks at the lock until {}: {}", from_zero(*answered), seen(holders, *waiters))
        }
        Event::Applied { op, token } => format!("the store grants {op} token {token}"),
        Event::Gone { op } => format!("the store drops {op}"),
        Event::Strikes { fault, kind, target, .. } => {
            format!("fault {fault} begins: {kind}, {target}")
        }
        Event::Heals { fault } => format!("fault {fault} is over"),
        Event::Died { victim } => format!("p{victim} is dead"),
        Event::Ends { tasks, files } => {
            format!("ends with {tasks} tasks and {files} open files more than at its start")
        }
        Event::Leaks { what } => format!("finds a leftover: {what}"),
    }
}

fn refused(op: &Op, why: &Refusal) -> String {
    match why {
        Refusal::Busy => format!("{op} is refused: busy"),
        Refusal::TimedOut => format!("{op} times out"),
        Refusal::Cancelled => format!("{op} is dropped"),
        Refusal::Failed(error) => format!("{op} certainly fails: {error}"),
        Refusal::Unknown(error) => format!("{op} fails with an unknown outcome: {error}"),
    }
}

fn released(op: &Op, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Freed => format!("{op} has released the lock"),
        Outcome::NotHeld => format!("{op} did not hold the lock at its release"),
        Outcome::Unknown(error) => format!("the release of {op} has an unknown outcome: {error}"),
        Outcome::Failed(error) => format!("the release of {op} failed: {error}"),
        Outcome::Dropped => format!("the guard of {op} is dropped"),
    }
}

/// The holders and the waiters that a look at the store found.
fn seen(holders: &[Holder], waiters: Option<u64>) -> String {
    let holders = holders.iter().map(|holder| {
        let op = holder.op.map_or("a holder without a label".to_owned(), |op| op.to_string());
        let token = holder.token.map_or(String::new(), |token| format!(", token {token}"));
        format!("{op} ({}{token})", mode_of(holder.mode))
    });
    let holders = holders.collect::<Vec<_>>().join(", ");
    let holders = if holders.is_empty() { "no holder" } else { &holders };
    let waiters = waiters.map_or(String::new(), |waiters| format!(", {waiters} waiters"));
    format!("{holders}{waiters}")
}

fn mode_of(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => "exclusive".to_owned(),
        Mode::Shared => "shared".to_owned(),
        Mode::Permits(1) => "1 permit".to_owned(),
        Mode::Permits(permits) => format!("{permits} permits"),
    }
}

fn accepted_or_refused(accepted: bool) -> &'static str {
    if accepted { "accepted" } else { "refused" }
}
