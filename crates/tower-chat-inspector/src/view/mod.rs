//! Converts stored data to the values that the templates show.

mod text;
mod time;
mod timeline;

pub(crate) use self::{
    text::{Excerpt, PageBudget, counted, visible},
    time::{duration, moment},
    timeline::{Page, Timeline, figures, timeline},
};
