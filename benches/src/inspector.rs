//! `inspector`: a page of the inspector over a long conversation in SQLite.
//!
//! Floor: the same page for 100 messages. Bound: three times the floor. The page with the next
//! request to the model has no bound, because it needs a replay of the whole conversation.

use std::{hint::black_box, time::Instant};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode},
};
use tower::ServiceExt;
use tower_chat::{BoxError, inspector::Inspector};
use tower_chat_sqlite::{Durability, SqliteStore};

use crate::{
    Effort,
    files::{self, Files},
    report::{Line, Samples, us_since},
};

const SHORT: usize = 100;
const LONG: usize = 10_000;
const PAGES: [&str; 4] = ["conversation", "next", "runs", "tools"];

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for page in PAGES {
        let requests = effort.repetitions(60);
        let (long, short) = runtime.block_on(measure_page(page, requests))?;
        Line::new("inspector", page, "sqlite", LONG, long.median(), short.median()).print()?;
    }
    Ok(())
}

/// Measures a page alternately for a conversation with many messages and for one with few messages.
async fn measure_page(page: &str, requests: usize) -> Result<(Samples, Samples), BoxError> {
    let (many, few) = (
        Files::make(Durability::Full, 1, LONG).await?,
        Files::make(Durability::Full, 1, SHORT).await?,
    );
    let pages = |store: &SqliteStore| Inspector::new(store.clone()).into_router();
    let (many_pages, few_pages) = (pages(&many.store), pages(&few.store));
    let (mut long, mut short) = (Samples::default(), Samples::default());
    for _ in 0..requests {
        long.add(answered(&many_pages, page).await?);
        short.add(answered(&few_pages, page).await?);
    }
    Ok((long, short))
}

async fn answered(pages: &Router, page: &str) -> Result<f64, BoxError> {
    let key = files::key(0);
    let address = format!("/{page}?scope={}&id={}", key.scope(), key.id());
    let request = Request::get(address).header("host", "localhost").body(Body::empty())?;
    let start = Instant::now();
    let response = pages.clone().oneshot(request).await?;
    if response.status() != StatusCode::OK {
        return Err(format!("the page {page} was answered with {}", response.status()).into());
    }
    black_box(to_bytes(response.into_body(), usize::MAX).await?);
    Ok(us_since(start))
}
