//! `tower-chat tools`.

mod listing;
mod totals;

use std::process::ExitCode;

use tower_chat::store::{InvocationQuery, ToolCallQueries};

use self::{listing::Listing, totals::Totals};
use crate::{
    arguments::ToolsArguments,
    error::CliError,
    output::{Lines, print_error},
};

/// Lists the tool calls of a store, and prints totals for each tool.
pub(crate) async fn tools(arguments: ToolsArguments) -> Result<ExitCode, CliError> {
    let store = arguments.store.open_to_read("list").await?;
    let conversation = arguments.conversation.as_deref();
    let keys = crate::store::keys(&store, arguments.scope, conversation).await?;
    let mut totals = Totals::default();
    let mut listing = arguments.list.then(Listing::default);
    // One conversation is read at a time, to limit the used memory.
    for key in keys {
        let mut query = InvocationQuery::of(&key);
        query.tool.clone_from(&arguments.tool);
        query.status = arguments.status;
        let invocations = store.history().invocations(&query).await;
        let invocations =
            invocations.map_err(|source| CliError::Tools { key: key.clone(), source })?;
        for unreadable in &invocations.unreadable {
            print_error(unreadable);
        }
        for (key, call) in invocations.found {
            totals.count(&call);
            if let Some(listing) = &mut listing {
                listing.push(&key, &call);
            }
        }
    }
    let mut lines = Lines::default();
    if arguments.json {
        lines.write_json(&totals.to_json(listing));
    } else {
        listing.iter().flat_map(Listing::to_lines).for_each(|line| lines.write(&line));
        totals.to_lines().iter().for_each(|line| lines.write(line));
    }
    lines.finish().map_err(CliError::Output)?;
    Ok(ExitCode::SUCCESS)
}
