"""Transactions of the index."""

from __future__ import annotations

import apsw
import pytest

from mlworkbench.history.database import transact


class Interrupted:
    """A connection on which Ctrl-C arrives while a transaction begins."""

    def __init__(self) -> None:
        self.connection = apsw.Connection(":memory:")

    @property
    def in_transaction(self) -> bool:
        return self.connection.in_transaction

    def execute(self, sql: str) -> None:
        self.connection.execute(sql)
        if sql.startswith("BEGIN"):
            raise KeyboardInterrupt


def test_interrupted_begin_leaves_no_transaction() -> None:
    connection = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        transact(connection, lambda _: None)
    assert not connection.in_transaction
