//! Lists the tools of a server.

use std::{collections::HashSet, fmt, sync::Arc, time::Duration};

use rmcp::{Peer, RoleClient, model::PaginatedRequestParams};
use tower_chat_layers::{Tool, Tools};

use crate::{McpError, McpLimits, McpTool, limits::Counter, name};

type ToolPredicate = Arc<dyn Fn(&McpTool) -> bool + Send + Sync>;

/// The tools of one MCP server, and the settings with which these tools are added to a tool loop
/// (the layer that runs tools for the model).
///
/// See the [crate](crate) for an example.
#[derive(Clone)]
pub struct McpTools {
    server: Peer<RoleClient>,
    prefix: String,
    needs_approval: Option<ToolPredicate>,
    safe_to_retry: Option<ToolPredicate>,
    time_limit: Option<Duration>,
    limits: McpLimits,
}

impl McpTools {
    /// Creates the settings for the server at the other end of a connection. This function sends no
    /// request.
    pub fn new(server: &Peer<RoleClient>) -> Self {
        let server = server.clone();
        let (needs_approval, safe_to_retry) = (None, None);
        let (prefix, time_limit) = (String::new(), None);
        let limits = McpLimits::default();
        Self { server, prefix, needs_approval, safe_to_retry, time_limit, limits }
    }

    /// Sets a prefix for the names that the model receives, so that the tools of several servers
    /// have different names.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the function that selects the tools that need approval: a call of such a tool runs only
    /// after the application has approved the call. By default, no tool needs approval.
    #[must_use]
    pub fn needs_approval(
        mut self,
        choose: impl Fn(&McpTool) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.needs_approval = Some(Arc::new(choose));
        self
    }

    /// Sets the function that selects the tools that are [safe to retry]. If the application
    /// resumes a run after a crash, a call of this run may have started without a stored result.
    /// Such a call is repeated only if its tool is safe to retry. By default, no tool is safe to
    /// retry.
    ///
    /// [safe to retry]: tower_chat_layers::ToolDefinition::safe_to_retry
    #[must_use]
    pub fn safe_to_retry(
        mut self,
        choose: impl Fn(&McpTool) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.safe_to_retry = Some(Arc::new(choose));
        self
    }

    /// Sets the time limit of a call. A call that exceeds the limit is cancelled at the server, and
    /// fails with [`McpError::TimedOut`]. By default only the limits of the whole run apply.
    /// Progress notifications of the server do not extend the limit.
    /// [`McpLimits::with_max_list_time`] limits the time of listing the tools.
    #[must_use]
    pub fn with_max_call_time(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Sets the limits on the data that the server may send, instead of the
    /// [defaults](McpLimits::default).
    #[must_use]
    pub fn with_limits(mut self, limits: McpLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Lists the tools that the server has at this time. Reads all pages of the list, and preserves
    /// the server's order.
    ///
    /// # Errors
    ///
    /// If the server fails or does not answer in time, if its list exceeds the [limits](McpLimits),
    /// or if the pages of the list form a cycle.
    pub async fn list(&self) -> Result<Vec<McpTool>, McpError> {
        let limit = self.limits.list_time;
        match tokio::time::timeout(limit, self.read_pages()).await {
            Ok(tools) => tools,
            Err(_) => Err(McpError::ListTimedOut { limit }),
        }
    }

    async fn read_pages(&self) -> Result<Vec<McpTool>, McpError> {
        let McpLimits { pages, tools: max, list_bytes, .. } = self.limits;
        let mut pages = Counter::new(pages, "pages of tools", "max_pages");
        let mut count = Counter::new(max, "tools", "max_tools");
        let mut bytes = Counter::new(list_bytes, "bytes of tools", "max_list_bytes");
        let mut tools = Vec::new();
        let mut seen = HashSet::new();
        let mut cursor = None;
        loop {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.server.list_tools(Some(params)).await;
            let page = page.map_err(McpError::of_list)?;
            pages.add(1)?;
            count.add(page.tools.len())?;
            page.tools.iter().try_for_each(|tool| bytes.add_json(tool))?;
            tools.extend(page.tools.into_iter().map(|tool| self.tool_with_settings(tool)));
            let Some(next) = page.next_cursor else { return Ok(self.with_unique_names(tools)) };
            bytes.add(next.len())?;
            if !seen.insert(next.clone()) {
                return Err(McpError::EndlessList { cursor: next });
            }
            cursor = Some(next);
        }
    }

    /// Lists the tools that the server has at this time, and adds them at the end of `tools`.
    ///
    /// # Errors
    ///
    /// The errors of [`list`](Self::list); [`McpError::Duplicate`], if `tools` already has a tool
    /// with the same name.
    pub async fn add_to(&self, tools: Tools) -> Result<Tools, McpError> {
        let mut listed = self.list().await?;
        for tool in &mut listed {
            // `tools` already has a tool with this name, for example from another server. If
            // `with_digest` returns the same name, `try_with` returns an error.
            if tools.get(&tool.definition().name).is_some() {
                let name = name::with_digest(&self.prefix, &tool.listed().name);
                tool.rename(name);
            }
        }
        Ok(listed.into_iter().try_fold(tools, Tools::try_with)?)
    }

    /// Renames tools, so that tools with different names at the server have different names for the
    /// model.
    fn with_unique_names(&self, mut tools: Vec<McpTool>) -> Vec<McpTool> {
        let listed: Vec<_> = tools.iter().map(|tool| tool.listed().name.clone()).collect();
        let listed: Vec<&str> = listed.iter().map(|name| &**name).collect();
        let names = name::unique_names(&self.prefix, &listed);
        for (tool, name) in tools.iter_mut().zip(names) {
            tool.rename(name);
        }
        tools
    }

    /// Creates an [`McpTool`] with these settings for a tool that the server has listed.
    fn tool_with_settings(&self, tool: rmcp::model::Tool) -> McpTool {
        let mut tool = McpTool::new(self.server.clone(), tool, &self.prefix);
        tool.set_limits(self.time_limit, self.limits);
        let is_chosen =
            |predicate: &Option<ToolPredicate>| predicate.as_ref().is_some_and(|it| it(&tool));
        let (needs_approval, safe_to_retry) =
            (is_chosen(&self.needs_approval), is_chosen(&self.safe_to_retry));
        tool.set_safety(needs_approval, safe_to_retry);
        tool
    }
}

impl fmt::Debug for McpTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTools")
            .field("prefix", &self.prefix)
            .field("time_limit", &self.time_limit)
            .finish_non_exhaustive()
    }
}
