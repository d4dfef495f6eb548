//! Runs `lockkit elect`.

use std::{ops::ControlFlow, time::Duration};

use tokio::time::sleep;

use crate::{
    cli::{ElectArguments, OutputArguments, StoreArguments},
    error::Result,
    exit::Exit,
    history::History,
    reporter::Reporter,
    turn::{Lock, Order, RunContext, Turn, Waited, with_status},
};

/// A host that lost the election waits this long, so that other hosts come first.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn elect(
    arguments: ElectArguments,
    store: &StoreArguments,
    output: &OutputArguments,
) -> Result<Exit> {
    let ElectArguments { name, job } = &arguments;
    let order = Order { name, lock: Lock::Election, wait: None, hold_for: Duration::ZERO, job };
    with_status(order, Reporter::new(output), async |turn| {
        let context = match turn.open(store).await? {
            ControlFlow::Continue(context) => context,
            ControlFlow::Break(exit) => return Ok(exit),
        };
        lead(turn, &context).await
    })
    .await
}

/// Leads again and again, until the command ends by itself.
async fn lead(turn: &mut Turn<'_>, context: &RunContext) -> Result<Exit> {
    loop {
        let guard = match turn.wait(context).await? {
            Waited::Held(guard) => guard,
            ended => return turn.not_held(ended, context).await,
        };
        turn.reporter.say(&format!(
            "{:?} is led by this host, term {}",
            turn.order.name,
            guard.fencing_token()
        ));
        let mut history = History::new(&context.store, turn.reporter, turn.program(), None);
        let ran = turn.hold(guard, context, &mut history).await?;
        if ran.by_itself {
            context.close().await;
            return Ok(ran.exit);
        }
        // The command may have got a signal that was meant for lockkit, too. That counts now,
        // because the command was stopped for another reason.
        if let Some(signal) = ran.signal.or_else(|| context.signals.last_end()) {
            return turn.not_held(Waited::Signal(signal), context).await;
        }
        tokio::select! {
            () = sleep(PAUSE) => {}
            signal = context.signals.end() => return turn.not_held(Waited::Signal(signal), context).await,
        }
    }
}
