//! The error type of a tool does not implement `Error`.

pub struct Broken;

/// Breaks.
#[tower_chat::tool]
async fn breaks() -> Result<String, Broken> {
    Err(Broken)
}

fn main() {
    breaks();
}
