"""The `review` command: a local web page for accepting or rejecting suggested labels."""

from __future__ import annotations

import getpass
import ipaddress
import os
import socket
import sys
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass

from proselflc.auditing.caveats import REVIEWED, AuditWarning
from proselflc.auditing.measured import in_words
from proselflc.errors import InputError, invalid_option, printable
from proselflc.reviewing.view import ReviewView, next_steps
from proselflc.run.audit import export_command
from proselflc.run.corrections import audit_of
from proselflc.run.reader import Run
from proselflc.run.review import Precision, Review, Sampled
from proselflc.terminal import stopping_on_signals
from proselflc.training.run_directory import Json
from proselflc.wording import command, option

PORT = 8642
PATIENCE = 20.0  # seconds
GRACE = 5  # seconds to finish answers when the server stops
_PORTS = 50  # ports to try


@dataclass(frozen=True)
class ServerOptions:
    """Where the page is served."""

    host: str = "127.0.0.1"  # name or address of this machine, as typed into a browser
    port: int = PORT  # the first to try
    by: str | None = None  # the reviewer; None for the name of the logged-in user
    opens_browser: bool = True
    patience: float = PATIENCE  # seconds that a client may keep a connection waiting

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise invalid_option("port", f"must be from 0 to 65535, got {self.port}")
        if self.by is not None and not 1 <= len(self.by.strip()) <= 40:
            raise invalid_option("name", f"must have from 1 to 40 characters, got {len(self.by)}")


def review(
    run: Run,
    options: ServerOptions,
    *,
    data: str | None = None,
    sample: int | None = None,
    seed: int = 0,
    note: Callable[[str], None],
    announce: Callable[[str], None],
) -> Review:
    """Serve the page of a run until the user stops it; return the review.

    `data` is where the run's data is now, if it has moved. A sample is that many labels,
    suspect or not, drawn at random. `note` is called with each note for the user, and `announce`
    with the address of the page.
    """
    try:
        import uvicorn

        from proselflc.reviewing.connections import connection
        from proselflc.reviewing.server import create_app
    except ImportError:
        raise InputError(
            "a review needs Starlette, which is not installed",
            fix='pip install "proselflc[review]"',
        ) from None
    by = options.by or _user()
    for part in (run.summary, run.config):  # the page needs both later: damage is found now
        del part
    reviewed = Review(run)
    reviewed.decisions.check_writable()
    if sample is None and not len(reviewed.suspects) and not reviewed.listed:
        reason = next((one.message for one in _warnings(run) if one.abstains), "")
        raise InputError(
            f"no label of {run.path} is suspect, so there is nothing to review"
            + (f": {reason}" if reason else ""),
            fix=f"measure how many are wrong with {command('review', run.path, sample=REVIEWED)}",
        )
    host = options.host
    with listen(host, options.port) as server_socket:  # before a sample is drawn
        port = server_socket.getsockname()[1]
        drawn = None if sample is None else reviewed.use_sample(sample, by, seed=seed)
        view = ReviewView(reviewed, by, data=data)
        if drawn is not None:
            note(drawn)
        if view.missing_reason:
            note(f"the examples themselves cannot be shown: {view.missing_reason}")
        warned = (warning.message for warning in _warnings(run))
        for text in (*run.notes, *warned, *reviewed.notes, *reviewed.decisions.notes):
            note(text)
        if not is_loopback(host):
            note(f"anyone who can reach {host} and has the address can change decisions")
        if options.port not in (0, port):
            note(f"port {options.port} is in use, so the page is served on port {port}")
        app = create_app(view, frozenset(f"{name}:{port}" for name in host_names(host)))
        address = f"http://{_in_address(host)}:{port}/?token={app.token}"
        config = uvicorn.Config(
            app,
            http=connection(options.patience),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_keep_alive=max(1, int(options.patience)),
            timeout_graceful_shutdown=GRACE,
        )
        with suppress(KeyboardInterrupt), stopping_on_signals():  # which is how a review ends
            announce(address)
            if options.opens_browser and not _open_browser(address):
                note("no browser could be opened; open the address above yourself")
            uvicorn.Server(config).run(sockets=[server_socket])
    reviewed.refresh()
    return reviewed


def summary(review: Review) -> Json:
    """Return the numbers of decisions, for JSON."""
    precision, sampled = review.whole_precision, review.sampled()
    return {
        "suspects": len(review.all_suspects),
        **_numbers(precision),
        "estimated_errors_left": review.remaining[0],
        "sample": None if sampled is None else _sample(sampled),
        "measured": None if sampled is None or not sampled.measured else asdict(sampled.measured),
        "review": str(review.run.directory.review),
        "warnings": [asdict(warning) for warning in _warnings(review.run)],
    }


def _warnings(run: Run) -> tuple[AuditWarning, ...]:
    """Return the reasons to be careful with the audit of a run."""
    audit = audit_of(run)
    return () if audit is None else audit.warnings


def _sample(sampled: Sampled) -> Json:
    """Return the numbers of a sample; the intervals are of all suspects and suggestions."""
    intervals = {"wrong_interval": sampled.wrong, "confirmed_interval": sampled.confirmed}
    known = {name: [0.0, 1.0] if i is None else [i[0], i[2]] for name, i in intervals.items()}
    return {"size": sampled.size, **_numbers(sampled.counts), **known}


def _numbers(precision: Precision) -> Json:
    return {
        "decided": precision.decided,
        "unsure": precision.unsure,
        "wrong": precision.wrong,
        "confirmed": precision.confirmed,
        "wrong_interval": list(precision.interval_of_wrong),
        "confirmed_interval": list(precision.interval_of_confirmed),
    }


def describe(review: Review, data: str | None = None) -> str:
    """Return the number of decisions as text, and the commands to run next."""
    precision, sampled = review.whole_precision, review.sampled()
    total = precision.decided + precision.unsure
    lines = []
    if total:
        lines.append(
            f"{total:,} of {len(review.all_suspects):,} suspects are decided: "
            f"{precision.confirmed:,} changed to the suggested label, "
            f"{precision.wrong - precision.confirmed:,} to another one, "
            f"{precision.decided - precision.wrong:,} kept as given, "
            f"{precision.unsure:,} marked “cannot tell”."
        )
    if sampled is not None and sampled.done:
        all_of_it = f"all {sampled.size:,}"
        first = f"the first {sampled.done:,} of {sampled.size:,}"
        lines += _measurement(sampled, all_of_it if sampled.done == sampled.size else first)
    if not lines:
        what = "suspect" if sampled is None else "label of the sample"
        return f"No {what} has been decided."
    if sampled is not None and sampled.measured is not None:
        again = command("audit", review.run.path)
        lines.append(f"{printable(again)} makes the audit use this measurement.")
    steps = [line for step in next_steps(review.run, data) for line in step.splitlines()]
    steps.append(f"{export_command(review.run, data)} {option('reviewed', True)}")
    return "\n".join([*lines, "", "Next:", *(f"  {step}" for step in steps)])


def _measurement(sampled: Sampled, decided: str) -> Iterator[str]:
    if sampled.measured is not None:
        yield f"{in_words(sampled.measured)} ({decided.capitalize()} of the sample are decided.)"
    elif sampled.wrong is not None:
        low, share, high = sampled.wrong
        yield (
            f"Estimated from the sample ({decided} decided), {share:.0%} of all suspects are wrong "
            f"labels (95% interval {low:.0%} to {high:.0%})."
        )
    else:
        yield f"{decided.capitalize()} labels of the sample are decided, too few to measure by."


def host_names(host: str) -> set[str]:
    """Return the names, in lower case, under which a page served at `host` may be requested.

    For an address such as 0.0.0.0 these are all names of this machine.
    """
    if host in ("127.0.0.1", "localhost", "::1"):
        return {"127.0.0.1", "localhost", "[::1]"} if host != "::1" else {"[::1]", "localhost"}
    if host not in ("0.0.0.0", "::"):
        return {_in_address(host)}
    names = {"127.0.0.1", "localhost", "[::1]"}
    for name in (socket.gethostname(), socket.getfqdn()):
        names.add(name.lower())
        with suppress(OSError):
            names |= {_in_address(str(info[4][0])) for info in socket.getaddrinfo(name, None)}
    return names


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at the port, or at the next free one."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise invalid_option(
            "host", f"must be a name or an address of this machine, got {host}: {error.strerror}"
        ) from None
    reason = ""
    for number in range(port, min(port + _PORTS, 65536)):
        server_socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            if os.name == "posix":  # elsewhere it would let two servers share one port
                server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server_socket.bind((address[0], number, *address[2:]))
            server_socket.listen(128)
            return server_socket
        except OSError as error:
            server_socket.close()
            reason = error.strerror or str(error)
    raise InputError(
        f"the page cannot be served at {host}, ports {port} to {port + _PORTS - 1}: {reason}",
        field="port",
        fix=f"choose another {option('port')} or {option('host')}",
    )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _in_address(host: str) -> str:
    return f"[{host.lower()}]" if ":" in host else host.lower()


def _user() -> str:
    try:
        return getpass.getuser()[:40]
    except (OSError, KeyError, ImportError):  # the user id has no name
        return "unknown"


def _open_browser(address: str) -> bool:
    """Open a graphical browser; a text browser would take over the terminal."""
    has_windows = sys.platform in ("win32", "darwin") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    try:
        return has_windows and webbrowser.open(address)
    except webbrowser.Error:
        return False
