//! Every rule of a quorum, against members that do as they are told.

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
mod urls;
