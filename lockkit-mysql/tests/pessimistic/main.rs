//! Tests of the pessimistic strategy on real servers, below the core's driver and with it.

#[macro_use]
extern crate lockkit_fixture;

mod format;
mod gc;
mod grant;
mod inspect;
mod lost;
mod note;
mod own_transaction;
mod storm;
mod strict;
mod support;
mod transaction;
mod transfer;
mod waiting;
