//! The pages: each asks the store, makes a view of the answer, and renders a template.

mod approvals;
mod conversation;
mod directory;
mod failure;
mod link;
mod message;
mod next;
mod open_runs;
mod tools;
mod usage;

use std::sync::Arc;

use askama::Template;
use axum::response::{Html, IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use serde::Deserialize;
use tower_chat_layers::ConversationKey;

use self::link::Link;
pub(crate) use self::{
    approvals::decide,
    conversation::conversation,
    directory::directory,
    failure::Failure,
    message::message,
    next::next,
    open_runs::{end_run, runs},
    tools::tools,
    usage::usage,
};
use crate::{Inspector, inspector::Scopes, view::visible};

type State = axum::extract::State<Arc<Inspector>>;
type Answer = Result<Response, Failure>;

/// What every page has around its content.
struct Frame {
    /// Where the pages are.
    path: String,
    title: String,
    /// The scope that is shown, if it is one.
    scope: Option<String>,
    /// Whether another scope can be chosen.
    has_scopes: bool,
}

impl Frame {
    fn new(inspector: &Inspector, title: impl Into<String>, scope: Option<&str>) -> Self {
        Self {
            path: inspector.path.clone(),
            title: title.into(),
            scope: scope.map(str::to_owned),
            has_scopes: !matches!(inspector.scopes, Scopes::One(_)),
        }
    }

    /// The first page.
    fn root(&self) -> Link {
        Link::new(&self.path, "")
    }

    /// A link to a page of this scope.
    fn link(&self, page: &str) -> Link {
        let link = Link::new(&self.path, page);
        match &self.scope {
            Some(scope) => link.with("scope", scope),
            None => link,
        }
    }

    fn shown_scope(&self) -> String {
        self.scope.as_deref().map(visible).unwrap_or_default()
    }
}

fn html(page: &impl Template) -> Answer {
    Ok(Html(page.render().map_err(Failure::template)?).into_response())
}

/// How many things that cannot be read a page names.
const UNREADABLE: usize = 50;

/// What a page says of things that cannot be read.
fn unreadable(errors: &[impl std::fmt::Display]) -> Vec<String> {
    let named = errors.iter().take(UNREADABLE).map(|error| visible(&error.to_string()));
    let more = errors.len().saturating_sub(UNREADABLE);
    let more = (more > 0).then(|| format!("{more} more cannot be read."));
    named.chain(more).collect()
}

/// Which conversation a page is about.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    scope: Option<String>,
    id: String,
}

impl Asked {
    pub(crate) fn key(&self, inspector: &Inspector) -> Result<ConversationKey, Failure> {
        let scope = inspector.scope(self.scope.as_deref())?.ok_or_else(Failure::no_scope)?;
        Ok(ConversationKey::new(scope, self.id.as_str()))
    }
}

impl Inspector {
    /// The scope that a page shows: the one that is asked for, if it may be; `None` for all of them.
    fn scope(&self, asked: Option<&str>) -> Result<Option<String>, Failure> {
        match (&self.scopes, asked) {
            (Scopes::One(scope), Some(asked)) if asked != scope => Err(Failure::other_scope()),
            (Scopes::One(scope), _) => Ok(Some(scope.clone())),
            (Scopes::Any | Scopes::All, asked) => Ok(asked.map(str::to_owned)),
        }
    }
}

pub(crate) async fn style() -> Response {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("../../static/style.css"))
        .into_response()
}

pub(crate) async fn script() -> Response {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("../../static/inspector.js"))
        .into_response()
}

pub(crate) async fn missing() -> Failure {
    Failure::missing("There is no such page.")
}
