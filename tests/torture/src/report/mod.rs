//! The checker's verdict in a form for people.

mod markdown;
#[cfg(test)]
mod tests;
mod timeline;

pub(crate) use self::markdown::{recoveries, tables};
pub use self::{markdown::markdown, timeline::timeline};
