//! Shows the checker's verdict as Markdown and as pictures.

mod markdown;
#[cfg(test)]
mod tests;
mod timeline;

pub(crate) use self::markdown::{recoveries, tables};
pub use self::{markdown::markdown, timeline::timeline};
