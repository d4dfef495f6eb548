//! Writes the note beside a lock, for its holder.

use std::sync::Arc;

use lockkit_core::{
    Clock, ErrorKind, Result, Tick,
    spi::{Note, Noted},
};
use redis::RedisResult;

use super::{RedisClaim, Waited};
use crate::{
    error::{self, Phase},
    reply::Written,
    script::{Arg, Call, Source},
    servers::Destination,
};

impl RedisClaim {
    /// Writes the note, if the lock is ours and the note is newer than the one in the store.
    pub(super) async fn write(&self, note: &Note) -> Result<Noted> {
        let Some(script) = &self.family.scripts().write_note else {
            let reason = "the Redis backend keeps notes beside mutexes and elections only";
            return Err(error::ours(ErrorKind::Unsupported, reason));
        };
        let deadline = Clock::Boot.now().after(self.spec.op_timeout);
        let mut route = self.store.route(self.keys.slot).alone();
        let mut late = 0;
        loop {
            let write = |destination: Arc<Destination>| async move {
                self.send_note(&destination, script, note, deadline).await
            };
            let (answer, waited) = route.lead(Phase::Write, write).await?;
            return match answer {
                Written::Yes { .. } => {
                    self.confirm(waited, "a note")?;
                    Ok(Noted::Written)
                }
                Written::NotHeld { .. } => Ok(Noted::NotHeld),
                Written::Outdated { .. } => Ok(Noted::Outdated),
                Written::Newer { .. } => Err(error::newer(&self.keys.note())),
                // This answer has corrected our idea of the server's time.
                Written::Late { .. } if late == 0 => {
                    late += 1;
                    continue;
                }
                Written::Late { .. } => Err(self.late()),
            };
        }
    }

    /// Sends the note, and learns the server's time from the answer.
    async fn send_note(
        &self,
        destination: &Destination,
        script: &'static Source,
        note: &Note,
        deadline: Tick,
    ) -> RedisResult<(Written, Option<Waited>)> {
        let key = self.keys.note();
        let revision = note.revision.to_string();
        let args = [
            Arg::Text(&self.owner),
            Arg::Number(destination.link.clock().at(deadline)),
            Arg::Text(&revision),
            Arg::Text(&note.text),
        ];
        let call = Call { script, keys: &[&self.keys.lock, &key], args: &args };
        let sent = Clock::Boot.now();
        let (reply, waited) = destination.run_confirmed(&call, self.replicas()).await?;
        let answer = Written::from_reply(&reply)?;
        destination.link.clock().observe(sent, answer.now(), Clock::Boot.now());
        Ok((answer, waited))
    }
}
