//! Tokens that are raised.

use lockkit_core::{ErrorKind, FencingToken, Result};
use redis::Value;

use super::{RedisClaim, nonsense};
use crate::{error, script::Arg};

/// A script counts exactly up to here.
const END: u64 = 1 << 53;

impl RedisClaim {
    /// Raises the token of our grant to `floor`, unless it is that large already.
    pub(super) async fn raise(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        let floor = match i64::try_from(floor.get()) {
            Ok(floor) if floor.unsigned_abs() < END => floor,
            _ => {
                let reason = format!("the token can't be raised to {floor}: tokens on Redis are below 2^53");
                return Err(error::ours(ErrorKind::InvalidOption, reason));
            }
        };
        // Never below what we were told, though the store may have lost it.
        let wanted = floor.max(self.fence.unwrap_or(0));
        let args = [Arg::Text(&self.owner), Arg::Number(wanted)];
        let (reply, waited) = self.run_on_grant(&self.family.scripts().raise_fence, &args).await?;
        match reply {
            Value::Int(-1) => Ok(None),
            Value::Int(-2) => Err(self.exhausted()),
            Value::Int(fence) => {
                self.confirm(waited, "a raised token")?;
                self.fence = Some(fence);
                u64::try_from(fence).map(|token| Some(FencingToken::new(token))).map_err(|_| nonsense())
            }
            _ => Err(nonsense()),
        }
    }
}
