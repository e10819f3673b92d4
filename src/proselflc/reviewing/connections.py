"""Connections of the review server, which are limited in number and closed when they stall.

uvicorn closes a connection that is idle between two requests, but waits forever for the rest of a
request that has begun, for the first byte of a new connection, and for a client that does not read
its answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 100
_CHECKS = 4  # checks of a connection within its patience


class Connection(H11Protocol):
    """A connection that is closed when its client keeps the server waiting."""

    patience = 20.0  # seconds
    most = MOST_CONNECTIONS  # at a time; above it, the one that has stalled longest is closed

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._stalled_at = self.loop.time()  # when it last made progress
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._schedule_check()
        others = [other for other in self.connections if isinstance(other, Connection)]
        alive = [other for other in others if not other.transport.is_closing()]
        if len(alive) > self.most:
            stalled = (other for other in alive if other._is_incomplete())
            min(stalled, key=lambda other: other._stalled_at, default=self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.timeout_keep_alive_task is not None:  # the first bytes of another request
            self._stalled_at = self.loop.time()
        super().data_received(data)

    def on_response_complete(self) -> None:
        self._stalled_at = self.loop.time()
        super().on_response_complete()

    def _is_incomplete(self) -> bool:
        """Return whether a request has not arrived completely."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def _schedule_check(self) -> None:
        self._timer = self.loop.call_later(self.patience / _CHECKS, self._check)

    def _check(self) -> None:
        """Close the connection if its client has been slow for too long."""
        unsent = self.transport.get_write_buffer_size()
        is_reading = unsent < self._unsent
        self._unsent = unsent
        if is_reading or not (unsent or self._is_incomplete()):
            self._stalled_at = self.loop.time()
        if self.loop.time() - self._stalled_at >= self.patience:
            self.transport.abort()
        else:
            self._schedule_check()


def connection(patience: float, most: int = MOST_CONNECTIONS) -> Any:
    """Return the class of connections with the given limits, for `uvicorn.Config(http=…)`."""
    return type("PatientConnection", (Connection,), {"patience": patience, "most": most})
