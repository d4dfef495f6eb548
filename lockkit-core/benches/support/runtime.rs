//! Makes the runtimes that the benches run on.

use tokio::runtime::{Builder, Runtime};

pub(crate) fn runtimes() -> [(&'static str, Runtime); 2] {
    [
        ("one thread", Builder::new_current_thread().enable_all().build().unwrap()),
        (
            "two threads",
            Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
        ),
    ]
}
