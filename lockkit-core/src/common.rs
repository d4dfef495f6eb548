//! Reads what every store takes as text: in its URL, and in settings.

use crate::{error::Result, options::LockOptions, url::Params};

/// The defaults of a locker's locks, and the locker's own settings that are text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Common {
    pub(crate) options: LockOptions,
    pub(crate) token_base: Option<u64>,
    pub(crate) process_gate: Option<bool>,
}

impl Common {
    pub(crate) fn take(params: &mut Params) -> Result<Self> {
        Ok(Self {
            options: take_options(params)?,
            token_base: params.parsed("token_base", "a whole number")?,
            process_gate: params.parsed("process_gate", "true or false")?,
        })
    }

    /// Takes each value that is not set here from `base`.
    pub(crate) fn over(self, base: Self) -> Self {
        let op_timeout = self.options.op_timeout().or(base.options.op_timeout());
        let options = self.options.over(&base.options);
        Self {
            // These are the defaults of one locker. So an op_timeout that is too long for the ttl
            // is an error, and not left out as in the options of a lock.
            options: match op_timeout {
                Some(op_timeout) => options.with_op_timeout(op_timeout),
                None => options,
            },
            token_base: self.token_base.or(base.token_base),
            process_gate: self.process_gate.or(base.process_gate),
        }
    }
}

/// Takes the options that a URL may set.
pub(crate) fn take_options(params: &mut Params) -> Result<LockOptions> {
    let mut options = LockOptions::new();
    if let Some(ttl) = params.duration("ttl")? {
        options = options.with_ttl(ttl);
    }
    if let Some(op_timeout) = params.duration("op_timeout")? {
        options = options.with_op_timeout(op_timeout);
    }
    if let Some(max_hold) = params.bound("max_hold")? {
        options = options.with_max_hold(max_hold);
    }
    if let Some(label) = params.text("label")? {
        options = options.with_label(label);
    }
    if let Some(group) = params.text("group")? {
        options = options.with_group(group);
    }
    Ok(options)
}
