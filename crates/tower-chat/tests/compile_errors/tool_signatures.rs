//! Parameters and names that `#[tool]` refuses.

use std::borrow::Cow;

#[tower_chat::tool]
async fn borrowed(city: Option<&str>) -> String {
    city.unwrap_or_default().to_owned()
}

#[tower_chat::tool]
async fn clone_on_write(city: Cow<'_, str>) -> String {
    city.into_owned()
}

#[tower_chat::tool]
async fn opaque(city: impl Into<String>) -> String {
    city.into()
}

#[tower_chat::tool(name = "has space")]
async fn spaced() -> String {
    String::new()
}

#[tower_chat::tool]
async fn größe() -> String {
    String::new()
}

fn main() {}
