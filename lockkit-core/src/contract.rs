//! The promises of a lockkit lock, under the numbers by which the conformance suite checks them.
//!
//! [`Capabilities`](crate::spi::Capabilities) and [`Exceptions`](crate::spi::Exceptions) of a
//! [descriptor](crate::spi::Descriptor) say which promises a backend claims.
//! [`FencingToken`](crate::FencingToken) shows how a resource stops a holder that acts late.

#![doc = include_str!("contract.md")]
