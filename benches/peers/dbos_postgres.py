"""DBOS on PostgreSQL: a durable workflow with a step for each call of the model and of the tool.

DBOS stores no conversations, so the application stores them in its own table. The argument of the workflow is the
number of stored messages, and not the messages, because DBOS would store the messages again. The process reads a
history once and caches it. The messages of a run are inserted at its end, in one transaction of a datasource, which
also commits the checkpoint of the last step. Of the possible ways, this is the cheapest one in which a recovered
workflow reads the same history.
"""

from __future__ import annotations

import argparse
from collections import deque
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from dbos import DBOS, SQLAlchemyDatasource
from sqlalchemy.dialects.postgresql import JSONB

from peers import measure, workload

MESSAGES = sa.Table(
    "messages",
    sa.MetaData(),
    sa.Column("conversation", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("body", JSONB, nullable=False),
)


class Application:
    """The scripted model, the database, and the cached conversations."""

    def __init__(self, address: str) -> None:
        self.answers: deque[dict[str, Any]] = deque()
        self.asked = 0
        self.known: dict[str, list[dict[str, Any]]] = {}
        self.source = SQLAlchemyDatasource.create(address)
        MESSAGES.create(self.source.engine, checkfirst=True)

    def load(self, conversation: str) -> list[dict[str, Any]]:
        """Reads a conversation from the database, and caches it."""
        wanted = sa.select(MESSAGES.c.body).where(MESSAGES.c.conversation == conversation)
        with self.source.engine.connect() as connection:
            rows = connection.execute(wanted.order_by(MESSAGES.c.position))
            self.known[conversation] = [body for (body,) in rows]
        return self.known[conversation]

    def history(self, conversation: str) -> list[dict[str, Any]]:
        """Returns a conversation from the cache, or reads it."""
        known = self.known.get(conversation)
        return self.load(conversation) if known is None else known


def application() -> Application:
    """Returns the application of this process."""
    assert APPLICATION is not None
    return APPLICATION


APPLICATION: Application | None = None


@DBOS.step()
def ask_model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    application().asked += 1
    return application().answers.popleft()


@DBOS.step()
def search_orders(arguments: str) -> str:
    return workload.RESULT_TEXT


@DBOS.workflow()
def run_agent(conversation: str, stored: int, text: str) -> str:
    """Executes one run after this number of stored messages, and returns the final answer."""
    messages = application().history(conversation)[:stored]
    messages.append({"role": "user", "content": text})
    answer = ask_model(messages)
    while calls := answer.get("tool_calls"):
        messages.append(answer)
        for call in calls:
            result = search_orders(call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        answer = ask_model(messages)
    messages.append(answer)
    application().source.run_tx_step(None, append, conversation, stored, messages[stored:])
    application().known[conversation] = messages
    return str(answer["content"])


def append(conversation: str, stored: int, messages: list[dict[str, Any]]) -> None:
    """Inserts messages, inside a transaction of the datasource."""
    session = application().source.sql_session()
    session.execute(sa.insert(MESSAGES), _rows(conversation, stored, messages))


class DbosPostgres(measure.Peer):
    packages = ("dbos",)
    is_in_files = False

    def __init__(self, address: str) -> None:
        global APPLICATION
        DBOS(config={"name": "bench", "system_database_url": address, "log_level": "ERROR"})
        APPLICATION = self.application = Application(address)
        DBOS.launch()

    def open(self, folder: Path) -> None:
        self.application.known.clear()

    def store(self, conversation: str, messages: list[workload.Message]) -> None:
        rows = _rows(conversation, 0, [_message(message) for message in messages])
        with self.application.source.engine.begin() as connection:
            connection.execute(sa.insert(MESSAGES), rows)

    def prepare(self, conversation: str, answers: list[workload.Call | workload.Answer]) -> None:
        self.application.answers = deque(_message(answer) for answer in answers)
        self.application.asked = 0

    def run(self, conversation: str) -> str:
        stored = len(self.application.history(conversation))
        return run_agent(conversation, stored, workload.INPUT)

    def read(self, conversation: str) -> int:
        return len(self.application.load(conversation))

    def calls(self) -> int:
        return self.application.asked


def _rows(
    conversation: str, first: int, messages: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    return [
        {"conversation": conversation, "position": first + number, "body": body}
        for number, body in enumerate(messages)
    ]


def _message(message: workload.Message) -> dict[str, Any]:
    match message:
        case workload.Input(text):
            return {"role": "user", "content": text}
        case workload.Call(id, arguments):
            function = {"name": workload.TOOL, "arguments": arguments}
            call = {"id": id, "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case workload.Result(id, text):
            return {"role": "tool", "tool_call_id": id, "content": text}
        case workload.Answer(text):
            return {"role": "assistant", "content": text}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="the folder, on a real disk")
    parser.add_argument("address", help="the address of the server's database")
    arguments = parser.parse_args()
    try:
        measure.main(DbosPostgres(arguments.address), arguments.folder)
    finally:
        DBOS.destroy()
