//! Tests of several stores together. The tests of a single store are in that store's crate.
