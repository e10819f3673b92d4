"""Dates and times in the cells of a table, as days since 1970."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

Order: TypeAlias = Literal["ymd", "dmy", "mdy", "time"]

_CLOCK = r"(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?\s*(am|pm)?"
_ZONE = r"\s*(z|utc|gmt|[+-]\d{2}:?\d{2})?"
_TIME = re.compile(_CLOCK, re.I)
_YEAR_FIRST = re.compile(
    rf"(\d{{4}})([-/.])(\d{{1,2}})\2(\d{{1,2}})(?:(?:t|\s+){_CLOCK}{_ZONE})?", re.I
)
_YEAR_LAST = re.compile(rf"(\d{{1,2}})([-/.])(\d{{1,2}})\2(\d{{4}})(?:,?\s+{_CLOCK}{_ZONE})?", re.I)
_DAY_NAMED = re.compile(r"(\d{1,2})[ -]([a-z]{3,9})\.?,?[ -](\d{4})", re.I)
_NAME_FIRST = re.compile(r"([a-z]{3,9})\.? (\d{1,2}),? (\d{4})", re.I)
_MONTHS = {
    name: k
    for k, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_EPOCH = datetime(1970, 1, 1)


def looks_like_date(word: str) -> bool:
    """Return whether a word is written like a date or a time.

    >>> looks_like_date("2024-02-30"), looks_like_date("3.5"), looks_like_date("7:05 pm")
    (True, False, True)
    """
    return len(word) <= 40 and any(
        form.fullmatch(word) for form in (_YEAR_FIRST, _YEAR_LAST, _TIME, _DAY_NAMED, _NAME_FIRST)
    )


def order(words: Sequence[str]) -> Order | None:
    """Return the order in which most of the words read as dates, or None.

    Where day and month can be told either way, the month is first if a slash is between them, as
    in the United States, and the day is first otherwise.

    >>> order(["13/02/2024", "01/02/2024"]), order(["01/02/2024"]), order(["01.02.2024"])
    ('dmy', 'mdy', 'dmy')
    """
    some = words[:10_000]
    if all(_TIME.fullmatch(word) for word in some):
        return "time"
    if not any(_YEAR_LAST.fullmatch(word) for word in some):
        return "ymd"  # which months that are named fit too
    count = {way: sum(days(word, way) is not None for word in some) for way in ("dmy", "mdy")}
    if count["dmy"] == count["mdy"]:
        return "mdy" if any("/" in word for word in some) else "dmy"
    return "dmy" if count["dmy"] > count["mdy"] else "mdy"


def days(word: str, way: str) -> float | None:
    """Return a date as days since 1970, in UTC if it has a zone; None if it is not one.

    >>> days("1970-01-02 12:00", "ymd"), days("02.01.1970", "dmy"), days("6:00", "time")
    (1.5, 1.0, 0.25)
    >>> days("2024-02-30", "ymd") is None
    True
    """
    if len(word) > 40:
        return None
    try:
        if way == "time":
            found = _TIME.fullmatch(word)
            return None if found is None else _clock(*found.groups()) / timedelta(days=1)
        found = _YEAR_FIRST.fullmatch(word)
        if found is not None:
            year, month, day = int(found[1]), int(found[3]), int(found[4])
            return _days(year, month, day, found.groups()[4:])
        found = _YEAR_LAST.fullmatch(word)
        if found is not None:
            first, second, year = int(found[1]), int(found[3]), int(found[4])
            day, month = (first, second) if way == "dmy" else (second, first)
            return _days(year, month, day, found.groups()[4:])
        found = _DAY_NAMED.fullmatch(word)
        if found is not None:
            return _days(int(found[3]), _MONTHS[found[2][:3].lower()], int(found[1]))
        found = _NAME_FIRST.fullmatch(word)
        if found is not None:
            return _days(int(found[3]), _MONTHS[found[1][:3].lower()], int(found[2]))
    except (ValueError, KeyError, OverflowError):
        pass
    return None


def text(value: float, is_time: bool) -> str:
    """Return days since 1970 as an ISO date, with the time if there is one.

    >>> text(1.5, False), text(1.0, False), text(0.25, True)
    ('1970-01-02 12:00:00', '1970-01-02', '06:00:00')
    """
    try:
        moment = _EPOCH + timedelta(seconds=round(value * 86_400))
    except OverflowError:
        return ""
    if is_time:
        return f"{moment:%H:%M:%S}"
    whole = moment.time() == _EPOCH.time()
    return moment.date().isoformat() if whole else moment.isoformat(" ")


def _days(year: int, month: int, day: int, clock: Sequence[str | None] = ()) -> float:
    moment = datetime(year, month, day)
    if clock and clock[0] is not None:
        moment += _clock(*clock[:5])
        zone = (clock[5] or "").lower()
        if zone[:1] in ("+", "-"):
            offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
            moment -= offset if zone[0] == "+" else -offset
    return (moment - _EPOCH) / timedelta(days=1)


def _clock(
    hour: str | None,
    minute: str | None,
    second: str | None,
    fraction: str | None,
    half: str | None,
) -> timedelta:
    h, m, s = int(hour or 0), int(minute or 0), int(second or 0)
    if half:
        if not 1 <= h <= 12:
            raise ValueError("there is no such hour")
        h = h % 12 + 12 * (half.lower() == "pm")
    if h > 24 or m > 59 or s > 60:
        raise ValueError("there is no such time")
    return timedelta(hours=h, minutes=m, seconds=s + float(f"0.{fraction or 0}"))
