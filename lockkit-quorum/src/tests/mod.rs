//! Tests of the rules of a quorum, against members that follow a script.

mod descriptor;
mod grant;
mod hold;
mod look;
mod members;
mod moves;
mod moves_storm;
mod partial;
mod storm;
mod sweep;
mod tickets;
mod urls;
