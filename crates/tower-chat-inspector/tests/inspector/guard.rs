//! Tests which requests the inspector refuses, and the headers of its responses.

use axum::body::Body;
use http::{
    Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_SECURITY_POLICY, COOKIE, HOST, LOCATION, ORIGIN, SET_COOKIE},
};
use tower_chat::MemoryStore;
use tower_chat_inspector::{Inspector, ServeError};

use crate::support::*;

#[tokio::test]
async fn only_requests_with_an_allowed_host_header_are_answered() {
    let router =
        Inspector::new(MemoryStore::new()).with_hosts(["Agents.example:8443"]).into_router();
    for (host, status) in [
        ("localhost", StatusCode::OK),
        ("127.0.0.1:8081", StatusCode::OK),
        ("[::1]:8081", StatusCode::OK),
        ("agents.example:8443", StatusCode::OK),
        ("agents.example", StatusCode::MISDIRECTED_REQUEST),
        ("evil.example", StatusCode::MISDIRECTED_REQUEST),
        ("localhost.evil.example", StatusCode::MISDIRECTED_REQUEST),
        ("evil.example:localhost", StatusCode::MISDIRECTED_REQUEST),
    ] {
        let request = Request::get("/").header(HOST, host).body(Body::empty()).unwrap();
        let response = send(&router, request).await;
        assert_eq!(response.status(), status, "{host}");
        let policy = response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    }
}

#[tokio::test]
async fn a_page_requires_the_token_and_the_link_with_the_token_sets_a_cookie() {
    let router = Inspector::new(filled().await).with_token("open-sesame").into_router();
    for request in [
        get("/"),
        get("/style.css"),
        get("/?token=wrong"),
        Request::get("/")
            .header(HOST, "localhost")
            .header(AUTHORIZATION, "Bearer wrong")
            .body(Body::empty())
            .unwrap(),
        Request::get("/")
            .header(HOST, "localhost")
            .header(COOKIE, "tower_chat_inspector=wrong")
            .body(Body::empty())
            .unwrap(),
    ] {
        let response = send(&router, request).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert!(!text(response).await.contains("alice"));
    }
    let response =
        send(&router, get("/conversation?scope=alice&token=open-sesame&id=errands")).await;
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    assert_eq!(response.headers()[LOCATION], "/conversation?scope=alice&id=errands");
    let cookie = response.headers()[SET_COOKIE].to_str().unwrap().to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    for (header, value) in [(COOKIE, cookie.as_str()), (AUTHORIZATION, "Bearer open-sesame")] {
        let request = Request::get("/").header(HOST, "localhost").header(header, value);
        let response = send(&router, request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn only_requests_from_the_origin_of_the_pages_may_write() {
    let router = Inspector::new(MemoryStore::new()).with_writes(true).into_router();
    for (header, value, status) in [
        (ORIGIN.as_str(), "http://evil.example", StatusCode::FORBIDDEN),
        (ORIGIN.as_str(), "null", StatusCode::FORBIDDEN),
        ("sec-fetch-site", "cross-site", StatusCode::FORBIDDEN),
        ("sec-fetch-site", "same-site", StatusCode::FORBIDDEN),
        (ORIGIN.as_str(), "http://localhost:8081", StatusCode::CONFLICT),
        ("sec-fetch-site", "same-origin", StatusCode::CONFLICT),
    ] {
        let request = Request::post("/runs/end?scope=a&id=b&run=c")
            .header(HOST, "localhost:8081")
            .header(header, value)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Body::from("end=commit"))
            .unwrap();
        assert_eq!(send(&router, request).await.status(), status, "{header}: {value}");
    }
}

#[tokio::test]
async fn requests_from_pages_of_another_origin_are_refused() {
    let router = Inspector::new(filled().await).into_router();
    let pages = [
        "/",
        "/?scope=alice",
        "/conversation?scope=alice&id=errands",
        "/message?scope=alice&id=errands&number=1",
        "/next?scope=alice&id=errands",
        "/tools?scope=alice",
        "/usage?scope=alice",
        "/runs?scope=alice",
        "/changes?scope=alice&id=errands",
        "/style.css",
    ];
    let site = "sec-fetch-site";
    for (headers, is_answered) in [
        (&[][..], true),
        (&[(site, "same-origin")], true),
        (&[(site, "none")], true),
        (&[("origin", "http://localhost:8081")], true),
        (&[("origin", "https://localhost:8081"), (site, "same-origin")], true),
        (&[(site, "cross-site")], false),
        (&[(site, "same-site")], false),
        (&[(site, "")], false),
        (&[(site, "same-origin"), (site, "cross-site")], false),
        (&[("origin", "http://evil.example")], false),
        (&[("origin", "http://localhost:3000")], false),
        (&[("origin", "null")], false),
        (&[("origin", "")], false),
        (&[("origin", "http://evil.example"), (site, "same-origin")], false),
        (&[("origin", "http://localhost:8081"), ("origin", "http://evil.example")], false),
        (&[("host", "evil.example")], false),
    ] {
        for (method, page) in [("GET", &pages[..]), ("HEAD", &pages[..1])]
            .into_iter()
            .flat_map(|(method, pages)| pages.iter().map(move |page| (method, *page)))
        {
            let mut request =
                Request::builder().method(method).uri(page).header(HOST, "localhost:8081");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let response = send(&router, request.body(Body::empty()).unwrap()).await;
            let status = response.status();
            assert_eq!(
                status == StatusCode::OK,
                is_answered,
                "{method} {page} {headers:?}: {status}"
            );
            assert_eq!(response.headers()["cross-origin-resource-policy"], "same-origin");
            assert_eq!(response.headers()["cross-origin-opener-policy"], "same-origin");
            if !is_answered {
                assert!(!text(response).await.contains("alice"), "{page}");
            }
        }
    }
}

#[tokio::test]
async fn a_link_with_a_token_of_any_characters_opens_the_pages() {
    let token = "p\u{e4};=% \"+";
    let router = Inspector::new(filled().await).with_token(token).into_router();
    let link = "/?token=p%C3%A4%3B%3D%25%20%22+&scope=alice";
    let response = send(&router, get(link)).await;
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    assert_eq!(response.headers()[LOCATION], "/?scope=alice");
    let cookie = response.headers()[SET_COOKIE].to_str().unwrap().split(';').next().unwrap();
    let with = |cookie: &str| {
        let request = Request::get("/").header(HOST, "localhost").header(COOKIE, cookie);
        request.body(Body::empty()).unwrap()
    };
    assert_eq!(send(&router, with(&format!("a=b; {cookie}"))).await.status(), StatusCode::OK);
    // The browser also sends the cookie of another inspector on the same host.
    let other = Inspector::new(MemoryStore::new()).with_token("other").into_router();
    assert_eq!(send(&other, with(cookie)).await.status(), StatusCode::UNAUTHORIZED);
    let response = send(&other, get("/?token=other")).await;
    let second = response.headers()[SET_COOKIE].to_str().unwrap().split(';').next().unwrap();
    for router in [&router, &other] {
        let both = with(&format!("{cookie}; {second}"));
        assert_eq!(send(router, both).await.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_page_shows_one_scope_unless_all_scopes_are_enabled() {
    let store = filled().await;
    let one = Inspector::new(store.clone()).in_one_scope("alice").into_router();
    assert!(page(&one, "/").await.contains("Lost things"));
    for address in ["/?scope=bob", "/conversation?scope=bob&id=errands", "/tools?scope=bob"] {
        assert_eq!(send(&one, get(address)).await.status(), StatusCode::FORBIDDEN, "{address}");
    }
    let any = Inspector::new(store.clone()).into_router();
    assert!(!page(&any, "/").await.contains("Lost things"));
    let all = Inspector::new(store).with_all_scopes().into_router();
    assert!(page(&all, "/").await.contains("Lost things"));
    for address in ["/tools", "/usage", "/runs", "/conversation?id=errands"] {
        assert_eq!(send(&any, get(address)).await.status(), StatusCode::BAD_REQUEST, "{address}");
    }
}

#[tokio::test]
async fn serving_beyond_the_loopback_requires_a_token() {
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let served = Inspector::new(MemoryStore::new()).serve(listener, std::future::pending()).await;
    assert!(matches!(served, Err(ServeError::TokenNeeded { .. })), "{served:?}");
}

#[tokio::test]
async fn all_links_of_an_inspector_under_a_path_begin_with_the_path() {
    let inspector = Inspector::new(filled().await).at_path("/inspector/").with_token("t1");
    let app = axum::Router::new().nest("/inspector", inspector.into_router());
    let request = Request::get("/inspector?scope=alice")
        .header(HOST, "localhost")
        .header(AUTHORIZATION, "Bearer t1")
        .body(Body::empty())
        .unwrap();
    let response = send(&app, request).await;
    assert_eq!(response.status(), StatusCode::OK);
    let shown = text(response).await;
    for address in shown.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        let is_here = ["/inspector", "#", "data:"].iter().any(|it| address.starts_with(it));
        assert!(is_here, "{address}");
    }
    let remembered = send(&app, get("/inspector?token=t1&scope=alice")).await;
    assert_eq!(remembered.headers()[LOCATION], "/inspector?scope=alice");
}
