//! Faults of the processes that take locks, and of their links.

use tokio::time::sleep;

use super::{
    Fleet, Notes, Schedule,
    fleet::Place,
    plan::{HolderFault, KILL_HOLDER, Strike, What},
};
use crate::{
    error::{Error, Result},
    link::{Link, LinkFault},
};

/// The words of the documentation of stores whose locks end with a connection.
const CONNECTION_BOUND: &str = "the store frees a lock when its connection breaks";

/// Causes the faults in their order.
pub(crate) async fn hurt_processes(
    fleet: &mut Fleet,
    strikes: &[Strike],
    schedule: Schedule,
    notes: &Notes,
    connection_bound: bool,
) -> Result<()> {
    for strike in strikes {
        if !schedule.reaches(strike.at, strike.lasts).await {
            notes.skips(strike.what.kind());
            continue;
        }
        fleet.look_after().await?;
        match strike.what {
            What::Holder(HolderFault::Kill, place) => kill(fleet, place, notes).await?,
            What::Holder(HolderFault::Stop, place) => {
                stop(&fleet.places()[place], strike, notes).await?
            }
            What::Link(fault, None) => {
                cut(fleet.places(), fault, strike, notes, connection_bound).await
            }
            What::Link(fault, Some(place)) => {
                cut(&fleet.places()[place..=place], fault, strike, notes, connection_bound).await;
            }
            What::Server(_) => {
                return Err(Error::new(
                    "the plan has a fault of the servers among the faults of the processes",
                ));
            }
        }
    }
    schedule.ends().await;
    fleet.look_after().await
}

/// Kills the process at a place, and starts another one there.
pub(super) async fn kill(fleet: &mut Fleet, place: usize, notes: &Notes) -> Result<()> {
    let victim = fleet.places()[place].child.number();
    let fault = notes.strikes(KILL_HOLDER, format!("process {victim}"), Some(victim), None);
    let replaced = fleet.replace(place).await;
    notes.heals(fault);
    replaced
}

async fn stop(place: &Place, strike: &Strike, notes: &Notes) -> Result<()> {
    let victim = place.child.number();
    let fault = notes.strikes("stop-holder", format!("process {victim}"), Some(victim), None);
    place.child.stop()?;
    sleep(strike.lasts).await;
    place.child.go_on()?;
    notes.heals(fault);
    Ok(())
}

async fn cut(
    places: &[Place],
    fault: LinkFault,
    strike: &Strike,
    notes: &Notes,
    connection_bound: bool,
) {
    let weakens = (connection_bound && fault.breaks_connections()).then_some(CONNECTION_BOUND);
    let (target, victim) = match places {
        [one] => {
            (format!("the connections of process {}", one.child.number()), Some(one.child.number()))
        }
        _ => ("all connections".to_owned(), None),
    };
    let number = notes.strikes(fault.kind(), target, victim, weakens);
    let links = || places.iter().filter_map(|place| place.link.as_ref());
    links().for_each(|link| link.strike(fault, strike.lasts, strike.chance));
    sleep(strike.lasts).await;
    if !fault.is_momentary() {
        links().for_each(Link::heal);
    }
    notes.heals(number);
}
