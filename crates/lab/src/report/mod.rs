//! Reports, made from saved results and from nothing else.

pub mod changes;
mod chart;
mod figure;
pub mod html;
mod scale;
pub mod text;
