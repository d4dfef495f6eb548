//! Measures whether the process gets processor time. On a busy machine, all work of the process is
//! late, including the work of lockkit.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    clock,
    history::{Event, Writer},
};

const BETWEEN_BEATS: Duration = Duration::from_millis(100);
/// The shortest delay to record.
const LATE: Duration = Duration::from_millis(150);

/// Records each period in which the runtime did not do its due work.
pub(super) async fn beat(history: Writer) {
    loop {
        let before = clock::now();
        sleep(BETWEEN_BEATS).await;
        let lasted = Duration::from_nanos(clock::now().saturating_sub(before));
        if lasted > BETWEEN_BEATS + LATE {
            history.write(Event::Stalled { lasted });
        }
    }
}
