//! Tests that the example runs without a key, and prints the text in its documentation.

use std::process::Command;

use super::example_path;

#[test]
fn the_example_calls_the_tools_of_its_own_server() {
    let output = Command::new(example_path("mcp_tools")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        printed.lines().collect::<Vec<_>>(),
        [
            "shop_stock: How many of an article are in stock. (read only)",
            "shop_order: Orders an article. (asks first)",
            "There are 3 lamps left. Shall I order one?",
            "recorded: shop_stock ok",
        ]
    );
}
