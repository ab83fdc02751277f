//! The error of a tool is no error.

pub struct Broken;

/// Breaks.
#[tower_chat::tool]
async fn breaks() -> Result<String, Broken> {
    Err(Broken)
}

fn main() {
    breaks();
}
