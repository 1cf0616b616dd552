//! Reports, made from saved results and from nothing else.

mod against;
pub mod changes;
mod chart;
mod choice;
mod curves;
mod figure;
pub mod html;
pub mod page;
mod scale;
pub mod screen;
pub mod text;
