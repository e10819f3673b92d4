"""`proselflc review`: a page on this machine where a person accepts or rejects corrections."""

from __future__ import annotations

import getpass
import ipaddress
import os
import socket
import sys
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from proselflc.errors import InputError
from proselflc.queue.worker_processes import stopping_on_signals
from proselflc.reviewing.view import Sheet, next_steps
from proselflc.run.audit import export_command
from proselflc.run.reader import Run
from proselflc.run.review import Precision, Review
from proselflc.training.run_directory import Json

PORT = 8642
PATIENCE = 20.0  # seconds
GRACE = 5  # seconds for answers that are under way when the server ends
_TRIED = 50  # ports, before giving up


@dataclass(frozen=True)
class Place:
    """Where the page is served.

    Attributes:
        host: name or address of this machine, as it is typed into a browser.
        port: the first that is tried.
        by: who reviews; None for who is logged in.
        opens: whether a browser is opened.
        patience: seconds that a connection may keep the server waiting before it is closed.
    """

    host: str = "127.0.0.1"
    port: int = PORT
    by: str | None = None
    opens: bool = True
    patience: float = PATIENCE

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InputError(f"--port must be from 0 to 65535, got {self.port}")
        if self.by is not None and not 1 <= len(self.by.strip()) <= 40:
            raise InputError("--name must have from 1 to 40 characters")


def review(
    run: Run,
    place: Place,
    *,
    data: str | None = None,
    sample: int | None = None,
    seed: int = 0,
    say: Callable[[str], None],
    show: Callable[[str], None],
) -> Review:
    """Serve the page of a run until it is interrupted; what was decided.

    Args:
        run: finished.
        place: where.
        data: where the run's data is now, if it has moved.
        sample: go through so many suspects alone, drawn by chance.
        seed: of the draw.
        say: is told what the user may not expect.
        show: is told the address.

    Raises:
        InputError: decisions could not be kept, there is nothing to review, or the server cannot
            be started.
    """
    try:
        import uvicorn

        from proselflc.reviewing.connections import connection
        from proselflc.reviewing.server import served
    except ImportError:
        raise InputError('a review needs Starlette: pip install "proselflc[review]"') from None
    by = place.by or _user()
    for read in (run.summary, run.config):  # the page and its end need them: damage is seen now
        del read
    reviewed = Review(run)
    reviewed.decisions.check_writable()
    if not len(reviewed.suspects):
        raise InputError(f"no label of {run.path} is suspect, so there is nothing to review")
    with listening(place.host, place.port) as door:  # before anything is said or drawn
        port = door.getsockname()[1]
        drawn = None if sample is None else reviewed.use_sample(sample, by, seed=seed)
        sheet = Sheet(reviewed, by, data=data)
        if drawn is not None:
            say(drawn)
        if sheet.why_gone:
            say(f"the examples themselves cannot be shown: {sheet.why_gone}")
        for note in (*run.notes, *reviewed.decisions.notes):
            say(note)
        if not is_loopback(place.host):
            say(f"whoever has the address can decide, from wherever {place.host} is reached")
        if place.port not in (0, port):
            say(f"port {place.port} is taken, so the page is at port {port}")
        name = _in_address(place.host)
        gate = served(sheet, frozenset(f"{one}:{port}" for one in names(place.host)))
        address = f"http://{name}:{port}/?token={gate.token}"
        config = uvicorn.Config(
            gate,
            http=connection(place.patience),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_keep_alive=max(1, int(place.patience)),
            timeout_graceful_shutdown=GRACE,
        )
        with suppress(KeyboardInterrupt), stopping_on_signals():  # that is how it ends
            show(address)
            if place.opens and not _opened(address):
                say("no browser could be opened: open the address above in one")
            uvicorn.Server(config).run(sockets=[door])
    reviewed.refresh()
    return reviewed


def outcome(done: Review) -> Json:
    """What was decided, in numbers."""
    precision, sampled = done.whole_precision, done.sampled()
    return {
        "suspects": len(done.all_suspects),
        **_numbers(precision),
        "estimated_errors_left": done.remaining[0],
        "sample": None if sampled is None else {"size": sampled[1], **_numbers(sampled[0])},
        "review": str(done.run.directory.review),
    }


def _numbers(precision: Precision) -> Json:
    return {
        "decided": precision.decided,
        "unsure": precision.unsure,
        "wrong": precision.wrong,
        "confirmed": precision.confirmed,
        "wrong_interval": list(precision.interval_of_wrong),
        "confirmed_interval": list(precision.interval_of_confirmed),
    }


def in_words(done: Review, data: str | None = None) -> str:
    """What was decided, and what to do with it.

    Args:
        done: the review.
        data: where the run's data is now, if it has moved.
    """
    precision = done.whole_precision
    many = precision.decided + precision.unsure
    if not many:
        return "Nothing has been decided."
    lines = [
        f"{many:,} of {len(done.all_suspects):,} suspects are decided: {precision.confirmed:,} as "
        f"suggested, {precision.wrong - precision.confirmed:,} otherwise, "
        f"{precision.decided - precision.wrong:,} kept, {precision.unsure:,} unsure."
    ]
    sampled = done.sampled()
    if sampled is not None and sampled[0].decided:
        measured, size = sampled
        low, high = measured.interval_of_wrong
        share = measured.wrong / measured.decided
        looked_at = measured.decided + measured.unsure
        decided = f"all {size:,}" if looked_at == size else f"the first {looked_at:,} of {size:,}"
        lines.append(
            f"By the sample ({decided} decided), {share:.0%} of all suspects are "
            f"really wrong (95% interval {low:.0%} to {high:.0%})."
        )
    return "\n".join(
        [
            *lines,
            "",
            "Next:",
            *(f"  {one}" for step in next_steps(done.run, data) for one in step.splitlines()),
            f"  {export_command(done.run, data)} --reviewed",
        ]
    )


def names(host: str) -> set[str]:
    """By which names a page that is served at `host` may be asked for, in small letters.

    An address that stands for every one of this machine's is asked for by any of them.
    """
    if host in ("127.0.0.1", "localhost", "::1"):
        return {"127.0.0.1", "localhost", "[::1]"} if host != "::1" else {"[::1]", "localhost"}
    found = {_in_address(host)}
    if host in ("0.0.0.0", "::"):
        found = {"127.0.0.1", "localhost", "[::1]"}
        for own in (socket.gethostname(), socket.getfqdn()):
            found.add(own.lower())
            try:
                found |= {_in_address(str(one[4][0])) for one in socket.getaddrinfo(own, None)}
            except OSError:
                continue
    return found


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens at the port, or at the next that is free.

    Raises:
        InputError: there is no such address, or no free port.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InputError(f"--host {host} is no name of this machine: {error.strerror}") from None
    reason = ""
    for one in range(port, min(port + _TRIED, 65536)):
        door = socket.socket(family, socket.SOCK_STREAM)
        try:
            if os.name == "posix":  # elsewhere it would let two servers have one port
                door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind((address[0], one, *address[2:]))
            door.listen(128)
            return door
        except OSError as error:
            door.close()
            reason = error.strerror or str(error)
    raise InputError(
        f"the page cannot be served at {host}, ports {port} to {port + _TRIED - 1}: {reason}; "
        "choose another --port or --host"
    )


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can ask for what is served there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _in_address(host: str) -> str:
    return f"[{host.lower()}]" if ":" in host else host.lower()


def _user() -> str:
    try:
        return getpass.getuser()[:40]
    except (OSError, KeyError, ImportError):  # no name for the user's number
        return "somebody"


def _opened(address: str) -> bool:
    """Open a browser with windows; one in the terminal would take that away from us."""
    has_windows = sys.platform in ("win32", "darwin") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    try:
        return has_windows and webbrowser.open(address)
    except webbrowser.Error:
        return False
