//! The options of a lock that a job runs under, and the job's grace.

use std::time::Duration;

use lockkit::LockOptions;

use crate::{
    cli::JobArguments,
    error::Result,
    job::{self, check_grace, check_proc},
    label,
    store::Store,
};

/// The grace of a job if its lease has room for it.
const GRACE: Duration = Duration::from_secs(5);

pub(super) fn options(arguments: &JobArguments, store: &Store) -> Result<(LockOptions, Duration)> {
    let label = || label::of_command(&job::command(arguments));
    let mut options = LockOptions::new().with_label(arguments.label.clone().unwrap_or_else(label));
    if let Some(ttl) = arguments.ttl {
        options = options.with_ttl(ttl);
    }
    let options = options.over(store.locker.defaults());
    let descriptor = store.locker.descriptor();
    let lease = if descriptor.exceptions.no_lease {
        Duration::MAX
    } else {
        options.ttl().min(descriptor.longest_lease)
    };
    let grace = arguments.grace.unwrap_or_else(|| GRACE.min(lease / 3));
    check_grace(grace, lease)?;
    check_proc()?;
    Ok((options, grace))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As docs/cli.md says: two thirds of the lease, less the grace and 1 %.
    #[test]
    fn a_job_survives_an_outage_of_14_7_s_by_default() {
        let lease = LockOptions::new().ttl();
        assert_eq!(
            (lease, GRACE.min(lease / 3)),
            (Duration::from_secs(30), Duration::from_secs(5))
        );
        assert_eq!(job::longest_outage(GRACE, lease), Duration::from_millis(14_700));
    }
}
