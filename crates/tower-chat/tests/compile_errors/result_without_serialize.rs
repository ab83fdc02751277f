//! The type of a result does not implement `Serialize`.

pub struct Receipt {
    pub cents: u64,
}

/// Orders a dish.
#[tower_chat::tool]
async fn order(dish: String) -> Receipt {
    Receipt { cents: dish.len() as u64 }
}

fn main() {
    order();
}
