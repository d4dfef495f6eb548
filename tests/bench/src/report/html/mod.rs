//! Writes the report as one page, without scripts and without references to other files.

mod bars;
mod figures;
mod lines;
mod page;
mod palette;
mod plots;

pub use self::page::html;

#[cfg(test)]
mod tests;
