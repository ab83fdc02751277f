//! The type of an argument has no derives.

pub struct Dish {
    pub name: String,
}

/// Orders a dish.
#[tower_chat::tool]
async fn order(dish: Dish, guests: u8) -> String {
    format!("{} for {guests}", dish.name)
}

fn main() {
    order();
}
