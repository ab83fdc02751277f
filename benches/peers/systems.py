"""The measured stacks, and the stack of tower-chat with which each is compared."""

from __future__ import annotations

from dataclasses import dataclass

OURS = "tower-chat"


@dataclass(frozen=True)
class System:
    """A stack with its store."""

    name: str
    # Either a Python module with its arguments, or a compiled program and its arguments.
    module: tuple[str, ...] = ()
    program: str = ""
    arguments: tuple[str, ...] = ()
    # Whether the stack uses a PostgreSQL server.
    has_server: bool = False
    # The key in `OWN` of the stack with the same durability or a better one.
    compared_with: str = ""


OWN = {
    "full": System("tower-chat, SQLite, `Full`", program=OURS, arguments=("full",)),
    "normal": System("tower-chat, SQLite, `Normal`", program=OURS, arguments=("normal",)),
    "postgres": System("tower-chat, PostgreSQL", program=OURS, has_server=True),
}

# The other frameworks, by the argument of --peer.
PEERS = {
    "adk-session": System(
        "adk-rust, SqliteSessionService (WAL)", program="adk-session", compared_with="full"
    ),
    "openai-agents": System(
        "OpenAI Agents SDK, SQLiteSession", ("peers.openai_agents",), compared_with="full"
    ),
    "langgraph": System(
        "LangGraph, SqliteSaver", ("peers.langgraph", "plain"), compared_with="full"
    ),
    "langgraph-delta": System(
        "LangGraph, SqliteSaver, DeltaChannel", ("peers.langgraph", "delta"), compared_with="full"
    ),
    "pydantic": System(
        "Pydantic AI, SqliteStepStore", ("peers.pydantic_harness",), compared_with="full"
    ),
    "agent-framework": System(
        "Agent Framework, FileHistoryProvider",
        ("peers.agent_framework",),
        compared_with="normal",
    ),
    "dbos": System(
        "DBOS, PostgreSQL", ("peers.dbos_postgres",), has_server=True, compared_with="postgres"
    ),
}
