//! `lockkit run`

use std::ops::ControlFlow;

use crate::{
    cli::{OutputArguments, RunArguments, StoreArguments},
    error::Result,
    exit::Exit,
    history::History,
    turn::{Lock, Order, Waited, with_status},
    voice::Voice,
};

pub(crate) async fn run(
    arguments: RunArguments,
    store: &StoreArguments,
    output: &OutputArguments,
) -> Result<Exit> {
    let RunArguments { name, wait, shared, write, permits, hold_for, job } = &arguments;
    let lock = match (shared, write, permits) {
        (true, ..) => Lock::Shared,
        (_, true, _) => Lock::Write,
        (.., Some(permits)) => Lock::Permits(*permits),
        (.., None) => Lock::Mutex,
    };
    let order = Order { name, lock, wait: Some(wait), hold_for: hold_for.unwrap_or_default(), job };
    with_status(order, Voice::new(output), async |turn| {
        let shop = match turn.open(store).await? {
            ControlFlow::Continue(shop) => shop,
            ControlFlow::Break(exit) => return Ok(exit),
        };
        match turn.wait(&shop).await? {
            Waited::Held(guard) => {
                let mut history = History::new(&shop.store, turn.voice, turn.program(), None);
                let ran = turn.hold(guard, &shop, &mut history).await;
                shop.close().await;
                ran.map(|ran| ran.exit)
            }
            ended => turn.not_held(ended, &shop).await,
        }
    })
    .await
}
