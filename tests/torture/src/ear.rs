//! A core that does not tell of a loss, or late: no backend can make it do so, so that it is put
//! between it and the holder.

use std::{future::pending, time::Duration};

use lockkit::{LossReason, Lost};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

/// How the loss of a lock is told to its holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ear {
    /// As lockkit tells it.
    #[default]
    Sound,
    /// Never.
    Deaf,
    /// So much later.
    Late(Duration),
}

/// The loss signal, as the holder hears it.
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

    /// Does the work, and tells of the loss as soon as that is told: also while the work waits for
    /// something else.
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
