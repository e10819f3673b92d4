"""Connections of the review server: one that keeps it waiting is closed, and there are not many.

uvicorn closes a connection that is idle between two requests, but waits without end for the rest
of a request that has begun, for the first byte of a new connection, and for a client that does not
read its answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 100
_LOOKS = 4  # how often a connection is looked at while it is waited for


class Connection(H11Protocol):
    """A connection that is closed when its client keeps the server waiting.

    Attributes:
        patience: seconds to wait.
        most: connections at the same time; of more, the one that waits longest is closed.
    """

    patience = 20.0
    most = MOST_CONNECTIONS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()  # when it began to keep the server waiting
        self._unsent = 0
        self._look: asyncio.TimerHandle | None = None
        self._look_again()
        every = [one for one in self.connections if isinstance(one, Connection)]
        still = [one for one in every if not one.transport.is_closing()]
        if len(still) > self.most:
            waiting = (one for one in still if one._waits())
            min(waiting, key=lambda one: one._since, default=self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.timeout_keep_alive_task is not None:  # the first bytes of another request
            self._since = self.loop.time()
        super().data_received(data)

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def _waits(self) -> bool:
        """Return whether a request has not arrived as a whole."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def _look_again(self) -> None:
        self._look = self.loop.call_later(self.patience / _LOOKS, self._check)

    def _check(self) -> None:
        """Close the connection if its client has been slow for too long."""
        unsent = self.transport.get_write_buffer_size()
        is_reading = unsent < self._unsent
        self._unsent = unsent
        if is_reading or not (unsent or self._waits()):
            self._since = self.loop.time()
        if self.loop.time() - self._since >= self.patience:
            self.transport.abort()
        else:
            self._look_again()


def connection(patience: float, most: int = MOST_CONNECTIONS) -> Any:
    """Return the class of connections with so much patience, for `uvicorn.Config(http=…)`."""
    return type("PatientConnection", (Connection,), {"patience": patience, "most": most})
