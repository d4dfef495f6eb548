//! Writes the report as one page that needs nothing else: no network, no script.

mod bars;
mod figures;
mod lines;
mod page;
mod palette;
mod picture;
mod plots;

pub use self::{page::html, picture::picture};

#[cfg(test)]
mod tests;
