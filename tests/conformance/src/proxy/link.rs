//! The fault proxy as the link of a store behind a socket.

use std::time::Duration;

use crate::{
    harness::{Faults, Link},
    proxy::Proxy,
};

impl Link for Proxy {
    fn set(&self, faults: Faults) {
        self.set(|toxics| {
            toxics.up.delay = faults.request_delay;
            toxics.up.hold = faults.hold_requests;
            toxics.down.delay = faults.reply_delay;
            toxics.down.discard = faults.lose_replies;
            toxics.refuse = faults.refuse;
        });
    }

    fn cut(&self) {
        self.reset_all();
    }

    fn cut_client(&self, late: Duration) {
        self.reset_clients(late);
    }
}
