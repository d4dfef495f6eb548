//! Simulates a core that signals a loss late or never. No backend can make the core do this, so
//! this code is between the core and the holder.

use std::{future::pending, time::Duration};

use lockkit::{LossReason, Lost};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

/// The way in which the holder gets the loss signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ear {
    /// When lockkit sends it.
    #[default]
    Sound,
    /// Never.
    Deaf,
    /// This much later.
    Late(Duration),
}

/// The loss signal as the holder gets it.
#[derive(Clone, Debug)]
pub(crate) struct Signal {
    lost: Lost,
    ear: Ear,
}

impl Signal {
    pub(crate) fn new(lost: Lost, ear: Ear) -> Self {
        Self { lost, ear }
    }

    pub(crate) async fn wait(&self) -> LossReason {
        let reason = self.lost.wait().await;
        match self.ear {
            Ear::Sound => {}
            Ear::Deaf => pending().await,
            Ear::Late(by) => sleep(by).await,
        }
        reason
    }

    /// Does the work, and calls `tell` as soon as the loss signal comes, even while the work waits.
    pub(crate) async fn beside<T>(
        &self,
        tell: impl FnOnce(LossReason),
        work: impl Future<Output = T>,
    ) -> T {
        let listens = async {
            tell(self.wait().await);
            pending().await
        };
        tokio::select! {
            biased;
            done = listens => done,
            done = work => done,
        }
    }
}
