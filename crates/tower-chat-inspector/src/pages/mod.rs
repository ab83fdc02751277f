//! The pages. The handler of a page reads the store, converts the data to a view, and renders a
//! template.

mod approvals;
mod branches;
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
use crate::{
    Inspector,
    inspector::Scopes,
    view::{counted, visible},
};

type State = axum::extract::State<Arc<Inspector>>;
type Answer = Result<Response, Failure>;

/// The values for the frame that surrounds the content of every page: title and navigation.
struct Frame {
    path: String,
    title: String,
    /// The scope (group of conversations, such as those of one user) of the data in the page.
    /// `None` if the page lists scopes, or shows data of several scopes.
    scope: Option<String>,
    /// Whether the page links to the list of scopes.
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

    /// Returns the link to the root of the pages.
    fn root(&self) -> Link {
        Link::new(&self.path, "")
    }

    /// Returns a link to another page with data of the same scope.
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

/// The maximum number of unreadable items that a page lists.
const UNREADABLE: usize = 50;

/// Returns the lines in which a page reports unreadable items.
fn unreadable(errors: &[impl std::fmt::Display]) -> Vec<String> {
    let named = errors.iter().take(UNREADABLE).map(|error| visible(&error.to_string()));
    let more = errors.len().saturating_sub(UNREADABLE);
    let more = (more > 0).then(|| format!("Not listed: {}.", counted(&more, "more error")));
    named.chain(more).collect()
}

/// The query parameters that name the conversation of a page.
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
    /// Returns the scope of the data in a page: the requested scope, or the only allowed scope.
    /// Returns `None` for all scopes. Fails if the requested scope is not allowed.
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
