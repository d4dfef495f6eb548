//! Tests the scripts of counted locks (read/write, semaphores) by themselves, on a real server.
//! Their clock is a key that the tests set, except where the test says otherwise. So keys and
//! leases lapse at a known instant.

mod cost;
mod model;
mod permits;
mod readers;
mod support;
mod traces;
