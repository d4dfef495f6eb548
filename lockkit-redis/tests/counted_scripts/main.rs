//! Tests the scripts of counted locks (read/write, semaphores) by themselves, on a real server.
//! Their clock is a key that the tests set, except where the test says otherwise. So keys and
//! leases lapse at a known instant.

mod cost;
mod model;
mod permits;
mod readers;
#[allow(dead_code, reason = "this target tests the counted family alone")]
#[path = "../../src/scripts.rs"]
mod scripts;
mod support;
mod traces;
