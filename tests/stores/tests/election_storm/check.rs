//! What must be true of all that was written down.

use std::time::Duration;

use libtest_mimic::Failed;
use lockkit::spi::Descriptor;

/// A kill or a stop.
pub(crate) struct Blow {
    pub(crate) at: u64,
    /// Whom it hit.
    pub(crate) id: String,
}

/// All of a storm.
#[derive(Default)]
pub(crate) struct Story {
    pub(crate) blows: Vec<Blow>,
    /// By the process' id.
    pub(crate) candidates: Vec<(String, String)>,
    pub(crate) observers: Vec<String>,
}

/// One term, as its leader believed it.
#[derive(Clone, Debug)]
struct Term {
    term: u64,
    id: String,
    gained: u64,
    /// The last instant of which it knew that it led.
    leads: u64,
    /// Until when it would have believed so, had it not been told otherwise.
    deadline: u64,
    resigned: Option<u64>,
    lost: bool,
}

impl Term {
    /// The end of what it believed, or might have believed without another line.
    fn end(&self, by_deadline: bool) -> u64 {
        match self.resigned {
            Some(at) => at,
            None if by_deadline => self.deadline,
            None => self.leads,
        }
    }
}

impl Story {
    pub(crate) fn verify(
        &self,
        descriptor: &Descriptor,
        ttl: Duration,
        slack: Duration,
    ) -> Result<(), Failed> {
        let mut terms = self.terms()?;
        terms.sort_by_key(|term| term.gained);
        // Such a store may free at once what a dead process held, which then believes nothing any more.
        let by_deadline = !descriptor.exceptions.connection_bound;
        for pair in terms.windows(2) {
            let [earlier, later] = pair else { continue };
            if earlier.term >= later.term {
                return Err(format!("C4: {later:?} follows {earlier:?}").into());
            }
            if earlier.end(by_deadline) > later.gained {
                return Err(format!("C1: {earlier:?} and {later:?} overlap").into());
            }
        }
        let takeover = ttl + descriptor.takeover_delay;
        let slowest = self.slowest_takeover(&terms, takeover, slack)?;
        let settled = descriptor.poll.max.min(Duration::from_millis(250)).mul_f64(1.25);
        let (seen, latest) = self.observed(&terms, settled + slack / 2)?;
        let count = |what: fn(&Term) -> bool| terms.iter().filter(|term| what(term)).count();
        println!(
            "{} terms: {} resigned, {} lost, {} cut off by {} blows; the slowest takeover took {slowest:?} of {takeover:?}; \
             {seen} settled leaders were seen by {} observers, within {latest:?} of {settled:?}",
            terms.len(),
            count(|term| term.resigned.is_some()),
            count(|term| term.lost),
            count(|term| term.resigned.is_none() && !term.lost),
            self.blows.len(),
            self.observers.len(),
        );
        let (cut, settled) = (count(|term| term.resigned.is_none()), seen);
        if self.blows.len() < 8 || cut < 4 || settled < 2 {
            return Err(format!(
                "that was no storm: {} terms, {cut} cut off, {settled} settled",
                terms.len()
            )
            .into());
        }
        Ok(())
    }

    fn terms(&self) -> Result<Vec<Term>, Failed> {
        let mut terms: Vec<Term> = Vec::new();
        for (id, told) in &self.candidates {
            for line in whole_lines(told) {
                let words: Vec<_> = line.split_whitespace().collect();
                match &*words {
                    ["gained", at, term, deadline] => {
                        let (gained, deadline) = (at.parse()?, deadline.parse()?);
                        let (term, id) = (term.parse()?, id.clone());
                        let (leads, resigned, lost) = (gained, None, false);
                        terms.push(Term { term, id, gained, leads, deadline, resigned, lost });
                    }
                    [word @ ("leads" | "resigns" | "lost"), at, number, rest @ ..] => {
                        let number: u64 = number.parse()?;
                        let known = terms.last_mut().filter(|known| known.id == *id && known.term == number);
                        match (*word, known) {
                            // It was stopped between its grant and its first line.
                            ("lost", None) => {}
                            (_, None) => {
                                return Err(format!("{id} did not gain what it wrote: {line}").into());
                            }
                            ("leads", Some(known)) => {
                                known.leads = at.parse()?;
                                known.deadline = rest.first().ok_or("no deadline")?.parse()?;
                            }
                            ("resigns", Some(known)) => known.resigned = Some(at.parse()?),
                            (_, Some(known)) => known.lost = true,
                        }
                    }
                    ["dropped", at] => {
                        let at: u64 = at.parse()?;
                        // The helper may drop the work before that has seen the loss by itself.
                        if let Some(known) = terms.last_mut().filter(|known| known.id == *id) {
                            known.lost |= known.resigned.is_none() && at >= known.leads;
                        }
                    }
                    _ => return Err(format!("{id} wrote {line:?}").into()),
                }
            }
        }
        Ok(terms)
    }

    /// The longest time from a blow to the next term.
    fn slowest_takeover(
        &self,
        terms: &[Term],
        takeover: Duration,
        slack: Duration,
    ) -> Result<Duration, Failed> {
        let is_leader = |blow: &Blow| {
            let hit = terms.iter().rfind(|term| term.id == blow.id && term.gained <= blow.at);
            hit.is_some_and(|term| term.resigned.is_none_or(|at| at > blow.at) && term.deadline > blow.at)
        };
        let mut slowest = Duration::ZERO;
        for (n, blow) in self.blows.iter().enumerate().filter(|(_, blow)| is_leader(blow)) {
            let Some(next) = terms.iter().find(|term| term.gained > blow.at) else {
                return Err(format!("C9: nobody follows {}, which was hit", blow.id).into());
            };
            let took = Duration::from_nanos(next.gained - blow.at);
            // Whoever waited and was hit instead of a leader costs its own bound when its turn comes; so does one that was
            // hit since.
            let near =
                |other: &Blow| other.at + nanos((takeover + slack) * 3) > blow.at && other.at < next.gained;
            let others = self.blows.iter().enumerate().filter(|(m, other)| *m != n && near(other));
            let others = others.filter(|(m, other)| *m > n || !is_leader(other)).count();
            let bound = takeover * (u32::try_from(others)? + 1) + slack;
            if took > bound {
                return Err(
                    format!("C9: {next:?} came {took:?} after {} was hit, not {bound:?}", blow.id).into()
                );
            }
            if others == 0 {
                slowest = slowest.max(took);
            }
        }
        Ok(slowest)
    }

    /// How many stood for longer than `bound`, and the longest time until an observer saw one of them.
    fn observed(&self, terms: &[Term], bound: Duration) -> Result<(usize, Duration), Failed> {
        let mut latest = Duration::ZERO;
        let mut settled = 0;
        for (n, told) in self.observers.iter().enumerate() {
            let (mut seen, mut begun) = (Vec::new(), None);
            for line in whole_lines(told) {
                let words: Vec<_> = line.split_whitespace().collect();
                match &*words {
                    ["saw", at, term] => {
                        begun = begun.or(Some(at.parse::<u64>()?));
                        seen.push((at.parse::<u64>()?, term.parse::<u64>()?));
                    }
                    ["nobody", at] => begun = begun.or(Some(at.parse()?)),
                    _ => return Err(format!("observer {n} wrote {line:?}").into()),
                }
            }
            let begun = begun.ok_or_else(|| format!("observer {n} saw nothing"))?;
            if let Some(pair) = seen.windows(2).find(|pair| pair[0].1 >= pair[1].1) {
                // The same leader again, after nobody, would be no new one.
                return Err(format!("C14: observer {n} saw the terms {} and {}", pair[0].1, pair[1].1).into());
            }
            let standing = terms.iter().filter(|term| {
                term.gained >= begun && term.resigned.unwrap_or(term.leads) >= term.gained + nanos(bound)
            });
            settled = 0;
            for term in standing {
                settled += 1;
                match seen.iter().find(|(_, number)| *number == term.term) {
                    Some((at, _)) => {
                        latest = latest.max(Duration::from_nanos(at.saturating_sub(term.gained)));
                    }
                    None => return Err(format!("C14: observer {n} missed {term:?}").into()),
                }
            }
        }
        Ok((settled, latest))
    }
}

/// What the shell that holds a process' leash adds when that is killed.
const SHELL: &str = "Killed";

/// The last line may be cut off.
fn whole_lines(told: &str) -> impl Iterator<Item = &str> {
    told.split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'))
        .filter(|line| !line.ends_with(SHELL))
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap()
}
