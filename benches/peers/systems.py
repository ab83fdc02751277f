"""What is measured, and with what of ours it is compared."""

from __future__ import annotations

from dataclasses import dataclass

OURS = "tower-chat"


@dataclass(frozen=True)
class System:
    """A stack with its store."""

    name: str
    # A Python module with its arguments, or a program that is built, with its arguments.
    module: tuple[str, ...] = ()
    program: str = ""
    arguments: tuple[str, ...] = ()
    # Whether it talks to PostgreSQL.
    has_server: bool = False
    # The key of ours: the same durability or better.
    compared_with: str = ""


OWN = {
    "full": System("tower-chat, SQLite, `Full`", program=OURS, arguments=("full",)),
    "normal": System("tower-chat, SQLite, `Normal`", program=OURS, arguments=("normal",)),
    "postgres": System("tower-chat, PostgreSQL", program=OURS, has_server=True),
}

# By the name for --peer.
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
