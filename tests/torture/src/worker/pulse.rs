//! Whether the process gets its turns: on a busy machine it is late with all it does, and lockkit
//! with it.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    clock,
    history::{Event, Writer},
};

const BETWEEN_BEATS: Duration = Duration::from_millis(100);
/// What is no later than this is not worth a line.
const LATE: Duration = Duration::from_millis(150);

/// Notes each time in which the runtime did nothing that was due.
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
