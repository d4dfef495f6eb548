//! The contents of the picture: the request, hold, belief and writes of each claim, and the faults.

use std::collections::HashMap;

use crate::{
    check::{Rule, Violation, op_of},
    history::{Event, Lock, Mode, Op, Outcome, Record, Refusal},
    report::markdown::{name, process},
};

/// The most rows. More claims are only counted.
const ROWS: usize = 24;
/// Longer than any lease, in nanoseconds.
const A_DAY: u64 = 24 * 3_600 * 1_000_000_000;

/// Two instants.
pub(super) type Span = (u64, u64);

/// Something that happened at one instant.
pub(super) struct Mark {
    pub(super) at: u64,
    pub(super) sign: Sign,
    pub(super) what: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// The register accepted a write.
    Taken,
    /// The register refused a write.
    Refused,
    /// The claim ended: a refusal, a release, a loss, or a death.
    End,
}

/// One claim, or one look at the store.
#[derive(Default)]
pub(super) struct Row {
    pub(super) label: String,
    pub(super) detail: String,
    /// The time of the request, or of the look.
    pub(super) asked: Option<Span>,
    /// The time in which the claim provably held.
    pub(super) held: Option<Span>,
    /// The time in which the holder may have believed that it held.
    pub(super) believed: Option<Span>,
    pub(super) marks: Vec<Mark>,
}

impl Row {
    /// From the grant to the end of the belief.
    pub(super) fn whole(&self) -> Option<Span> {
        let (from, to) = self.held?;
        Some((from, self.believed.map_or(to, |(_, to)| to)))
    }

    /// Adds the belief after the proven hold. It lasts until the lease ends at `until`, or until
    /// the claim ended.
    fn believe(&mut self, until: u64, over: Option<u64>) {
        let Some((_, known)) = self.held else { return };
        let until = over.map_or(until, |over| over.min(until)).max(known);
        self.believed = (until > known).then_some((known, until));
    }
}

/// A fault.
pub(super) struct Band {
    pub(super) what: String,
    pub(super) span: Span,
}

/// The contents of the picture.
pub(super) struct Scene {
    pub(super) rows: Vec<Row>,
    /// The number of claims without a row.
    pub(super) others: usize,
    pub(super) bands: Vec<Band>,
    /// The time in which two claims held although only one of them can hold.
    pub(super) clash: Option<Span>,
    /// The time of the picture, and the instant of its 0.
    pub(super) window: Span,
    pub(super) zero: u64,
}

impl Scene {
    pub(super) fn of(violation: &Violation, records: &[Record]) -> Self {
        let slice = &violation.slice;
        let mut ops: Vec<Op> = Vec::new();
        for op in slice.iter().filter_map(|record| op_of(&record.event)) {
            if !ops.contains(&op) {
                ops.push(op);
            }
        }
        let others = ops.len().saturating_sub(ROWS);
        ops.truncate(ROWS);
        let mut rows = claims(&ops, records);
        rows.extend(slice.iter().filter_map(look));
        let zero = slice.first().map_or(0, |record| record.at);
        let clash = (violation.rule == Rule::Exclusion).then(|| clash(&rows)).flatten();
        let window = window(slice, &rows);
        Self { rows, others, bands: bands(records, window), clash, window, zero }
    }
}

/// The time of the slice and of its holds. The picture cuts off a request that waited for long.
fn window(slice: &[Record], rows: &[Row]) -> Span {
    let asks = |record: &&Record| matches!(record.event, Event::Asks { .. });
    let held = rows.iter().filter_map(Row::whole).flat_map(|(from, to)| [from, to]);
    let decisive = slice.iter().filter(|record| !asks(record)).map(|record| record.at).chain(held);
    let (from, to) = decisive.fold((u64::MAX, 0), |(from, to), at| (from.min(at), to.max(at)));
    let from = if from > to { slice.first().map_or(0, |record| record.at) } else { from };
    let asked = slice.iter().filter(asks).map(|record| record.at).min().unwrap_or(from);
    // The picture can show only the request if the request never ended.
    let asking = rows.iter().filter_map(|row| row.asked).map(|(_, to)| to);
    let to = if from < to { to } else { asking.fold(to, u64::max) };
    let to = to.max(slice.last().map_or(0, |record| record.at)).max(from + 1_000_000);
    let from = from.min(asked.max(from.saturating_sub(to - from)));
    let margin = (to - from) / 25;
    (from.saturating_sub(margin), to.saturating_add(margin))
}

fn claims(ops: &[Op], records: &[Record]) -> Vec<Row> {
    let mut of: HashMap<Op, Vec<&Record>> = ops.iter().map(|op| (*op, Vec::new())).collect();
    let mut died: HashMap<u32, u64> = HashMap::new();
    for record in records {
        if let Event::Died { victim } = record.event {
            died.insert(victim, record.at);
        }
        if let Some(own) = op_of(&record.event).and_then(|op| of.get_mut(&op)) {
            own.push(record);
        }
    }
    let end = records.last().map_or(0, |record| record.at);
    let row = |op: &Op| {
        claim(*op, of.get(op).map_or(&[], Vec::as_slice), died.get(&op.process).copied(), end)
    };
    ops.iter().map(row).collect()
}

/// `died` is the time of the death of the claim's process, and `end` is the end of the history.
fn claim(op: Op, records: &[&Record], died: Option<u64>, end: u64) -> Row {
    let mut row = Row { label: op.to_string(), ..Row::default() };
    let mut largest = 0;
    let mut over = None;
    for Record { at, event, .. } in records {
        let at = *at;
        match event {
            Event::Asks { mode, .. } => {
                row.asked = Some((at, died.unwrap_or(end).max(at)));
                row.detail = mode_of(*mode);
            }
            Event::Granted { token, until, .. } => {
                row.asked = row.asked.map(|(from, _)| (from, at));
                row.held = Some((at, at));
                row.detail = format!("token {token}, {}", row.detail);
                largest = *until;
            }
            Event::Refused { why, .. } => {
                row.asked = row.asked.map(|(from, _)| (from, at));
                row.marks.push(Mark { at, sign: Sign::End, what: refusal(why).to_owned() });
            }
            Event::Holds { until, .. } => {
                largest = largest.max(*until);
                row.held = row.held.map(|(from, _)| (from, at));
            }
            Event::Releases { .. } => {
                over.get_or_insert(at);
                // A release after the end of the last confirmed lease proves nothing.
                row.held = row.held.map(|(from, to)| (from, if at <= largest { at } else { to }));
            }
            Event::Told { .. } => {
                row.marks.push(Mark { at, sign: Sign::End, what: "loss signal".to_owned() })
            }
            Event::Lost { reason, .. } => {
                over.get_or_insert(at);
                let why = reason.as_deref().unwrap_or("no reason");
                row.marks.push(Mark { at, sign: Sign::End, what: format!("lost: {why}") });
            }
            Event::Released { outcome, .. } => {
                row.marks.push(Mark { at, sign: Sign::End, what: release(outcome).to_owned() });
            }
            Event::Compared { token, largest, accepted, .. } => {
                let sign = if *accepted { Sign::Taken } else { Sign::Refused };
                let what = format!("a write with token {token}; the largest was {largest}");
                row.marks.push(Mark { at, sign, what });
            }
            _ => {}
        }
    }
    // Without a lease the claim holds until its process dies, so there is no end to draw.
    let until = if largest.saturating_sub(end) > A_DAY { died.unwrap_or(end) } else { largest };
    row.believe(until, over);
    if let Some(at) = died
        && over.is_none()
    {
        row.marks.push(Mark { at, sign: Sign::End, what: "dead".to_owned() });
    }
    row
}

fn look(record: &Record) -> Option<Row> {
    let Event::Seen { answered, holders, waiters, .. } = &record.event else { return None };
    let ops = holders
        .iter()
        .map(|holder| holder.op.map_or("a holder without a label".to_owned(), |op| op.to_string()));
    let mut seen = ops.collect::<Vec<_>>().join(", ");
    if seen.is_empty() {
        seen.push_str("no holder");
    }
    if let Some(waiters) = waiters.filter(|waiters| *waiters > 0) {
        seen.push_str(&format!(", {waiters} waiters"));
    }
    let mark = Mark { at: *answered, sign: Sign::End, what: format!("sees {seen}") };
    let label = process(record.process);
    let detail = "looks at the store".to_owned();
    Some(Row {
        label,
        detail,
        asked: Some((record.at, *answered)),
        marks: vec![mark],
        ..Row::default()
    })
}

fn bands(records: &[Record], window: Span) -> Vec<Band> {
    let mut bands: Vec<(u32, Band)> = Vec::new();
    for record in records {
        match &record.event {
            Event::Strikes { fault, kind, target, .. } => {
                let what = format!("{kind}: {target}");
                bands.push((*fault, Band { what, span: (record.at, record.at) }));
            }
            Event::Heals { fault } => {
                if let Some((_, band)) = bands.iter_mut().rfind(|(number, _)| number == fault) {
                    band.span.1 = record.at;
                }
            }
            _ => {}
        }
    }
    let seen = |band: &Band| band.span.0 <= window.1 && band.span.1 >= window.0;
    bands.into_iter().map(|(_, band)| band).filter(seen).collect()
}

/// The time that the last grant shares with all holds that overlap it.
fn clash(rows: &[Row]) -> Option<Span> {
    let last = rows.iter().filter_map(Row::whole).max()?;
    let others = rows.iter().filter_map(Row::whole).filter(|span| *span != last && span.1 > last.0);
    let to = others.map(|(_, to)| to.min(last.1)).min()?;
    Some((last.0, to))
}

fn refusal(why: &Refusal) -> &'static str {
    match why {
        Refusal::Busy => "busy",
        Refusal::TimedOut => "timed out",
        Refusal::Cancelled => "cancelled",
        Refusal::Failed(_) => "failed",
        Refusal::Unknown(_) => "unknown",
    }
}

fn release(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Freed => "freed",
        Outcome::NotHeld => "not held",
        Outcome::Unknown(_) => "unknown",
        Outcome::Failed(_) => "not released",
        Outcome::Dropped => "dropped",
    }
}

fn mode_of(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => "exclusive".to_owned(),
        Mode::Shared => "shared".to_owned(),
        Mode::Permits(permits) => format!("{permits} permits"),
    }
}

/// The violation's lock, for the heading.
pub(super) fn lock_of(lock: Option<&Lock>) -> String {
    lock.map_or("no single lock".to_owned(), name)
}
