//! Runs `lockkit run`.

use std::ops::ControlFlow;

use crate::{
    cli::{OutputArguments, RunArguments, StoreArguments},
    error::Result,
    exit::Exit,
    history::History,
    reporter::Reporter,
    turn::{Lock, Order, Waited, with_status},
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
    with_status(order, Reporter::new(output), async |turn| {
        let context = match turn.open(store).await? {
            ControlFlow::Continue(context) => context,
            ControlFlow::Break(exit) => return Ok(exit),
        };
        match turn.wait(&context).await? {
            Waited::Held(guard) => {
                let mut history = History::new(&context.store, turn.reporter, turn.program(), None);
                let ran = turn.hold(guard, &context, &mut history).await;
                context.close().await;
                ran.map(|ran| ran.exit)
            }
            ended => turn.not_held(ended, &context).await,
        }
    })
    .await
}
