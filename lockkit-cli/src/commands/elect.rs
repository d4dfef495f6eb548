//! `lockkit elect`

use std::{ops::ControlFlow, time::Duration};

use tokio::time::sleep;

use crate::{
    cli::{ElectArguments, OutputArguments, StoreArguments},
    error::Result,
    exit::Exit,
    history::History,
    turn::{Lock, Order, Shop, Turn, Waited, with_status},
    voice::Voice,
};

/// Whoever has lost it lets others come first.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn elect(
    arguments: ElectArguments,
    store: &StoreArguments,
    output: &OutputArguments,
) -> Result<Exit> {
    let ElectArguments { name, job } = &arguments;
    let order = Order { name, lock: Lock::Election, wait: None, hold_for: Duration::ZERO, job };
    with_status(order, Voice::new(output), async |turn| {
        let shop = match turn.open(store).await? {
            ControlFlow::Continue(shop) => shop,
            ControlFlow::Break(exit) => return Ok(exit),
        };
        lead(turn, &shop).await
    })
    .await
}

/// Leads, again and again, until the command ends by itself.
async fn lead(turn: &mut Turn<'_>, shop: &Shop) -> Result<Exit> {
    loop {
        let guard = match turn.wait(shop).await? {
            Waited::Held(guard) => guard,
            ended => return turn.not_held(ended, shop).await,
        };
        turn.voice.say(&format!(
            "{:?} is led by this host, term {}",
            turn.order.name,
            guard.fencing_token()
        ));
        let mut history = History::new(&shop.store, turn.voice, turn.program(), None);
        let ran = turn.hold(guard, shop, &mut history).await?;
        if ran.by_itself {
            shop.close().await;
            return Ok(ran.exit);
        }
        // One that the command got was meant for us, too, now that something else has stopped the
        // command.
        if let Some(signal) = ran.signal.or_else(|| shop.signals.last_end()) {
            return turn.not_held(Waited::Signal(signal), shop).await;
        }
        tokio::select! {
            () = sleep(PAUSE) => {}
            signal = shop.signals.end() => return turn.not_held(Waited::Signal(signal), shop).await,
        }
    }
}
