//! Writes the report as one page, without scripts and without references to other files.

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
