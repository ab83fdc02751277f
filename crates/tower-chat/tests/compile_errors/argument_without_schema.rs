//! The type of an argument has `Deserialize`, but no schema.

use tower_chat::serde;

#[derive(serde::Deserialize)]
#[serde(crate = "tower_chat::serde")]
pub struct Dish {
    pub name: String,
}

/// Orders dishes.
#[tower_chat::tool]
async fn order(dishes: Vec<Dish>) -> String {
    dishes.iter().map(|dish| dish.name.as_str()).collect()
}

fn main() {
    order();
}
