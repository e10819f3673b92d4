"""SVG elements of a page: small, in the page's colours and font, with distinct ids.

A page sets its colours in CSS variables, `--ink`, `--muted`, `--paper` and `--line-1` … `--line-6`.
Without them, and in a separate file, a drawing has the colours of `COLOURS`.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

# They are replaced by the variables of a page, so no two may be the same.
COLOURS = {
    "ink": "#1b1f24",
    "muted": "#d5dbe2",
    "paper": "#ffffff",
    "line-1": "#0072b2",
    "line-2": "#d55e00",
    "line-3": "#00805c",
    "line-4": "#b8509a",
    "line-5": "#8f6a00",
    "line-6": "#5b6673",
}

CURVE_POINTS = 28  # more could not be distinguished
_CURVE_WIDTH, _CURVE_HEIGHT = 90, 30

Probabilities: TypeAlias = Sequence[float] | npt.NDArray[np.floating[Any]]

_VARIABLES = {colour: f"var(--{name},{colour})" for name, colour in COLOURS.items()}
_VARIABLE = re.compile(r"var\(--[a-z0-9-]+,(#[0-9a-f]{6})\)")
_REFERENCE = re.compile(r"^(?:url\()?#([\w.-]+)\)?$")
_FRACTION = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")
_NAMESPACES = {"{http://www.w3.org/2000/svg}": "", "{http://www.w3.org/1999/xlink}": "xlink:"}
_DECIMALS = {"d": 1, "transform": 4, "x": 2, "y": 2}
_OMITTED_STYLES = ("", "font-family", "stroke-dashoffset")
_OMITTED_ELEMENTS = ("metadata", "style")  # a style sheet would be the whole page's


def inline(drawn: bytes, *, name: str, title: str, alt: str) -> str:
    """Return a matplotlib drawing in the colours of `COLOURS` as an element of a page.

    It fills the available width, and has `role="img"`, its title and its alternative text.
    Every id begins with `name`, so that a page can hold several; nothing refers to anything
    outside. There is no style sheet and no style attribute, so that the policy of the page can
    forbid them; colours and sizes are attributes, and the font is the page's.
    """
    root = _parsed(drawn)
    box = root.attrib["viewBox"]
    body = [part for child in root for part in _unwrapped(child)]
    references = dict.fromkeys(found for element in body for found in _references(element))
    names = {found: f"{name}-{k}" for k, found in enumerate(references)}
    svg = ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "xmlns:xlink": "http://www.w3.org/1999/xlink",
            "viewBox": box,
            "width": "100%",
            "role": "img",
            "aria-labelledby": f"{name}-title {name}-alt",
            "stroke-linejoin": "round",
        },
    )
    ET.SubElement(svg, "title", {"id": f"{name}-title"}).text = title
    ET.SubElement(svg, "desc", {"id": f"{name}-alt"}).text = alt
    svg.extend(body)
    for element in body:
        for one in element.iter():
            _rename(one, names)
            _shorten(one)
    for parent in list(svg.iter()):
        _paint_masks(parent, name)
        _share_styles(parent)
    for element in svg.iter():
        element.attrib |= _declarations(element.attrib.pop("style", ""))
    return ET.tostring(svg, encoding="unicode")


def standalone(svg: str) -> bytes:
    """Return an element from `inline` as a file, with fixed colours, background, size and font.

    Some programs that read SVG do not support variables.
    """
    root = _parsed(svg.encode())
    width, height = root.attrib["viewBox"].split()[2:]
    for element in root.iter():
        for key, value in element.attrib.items():
            element.attrib[key] = _VARIABLE.sub(r"\1", value)
    root.attrib |= {
        "xmlns": "http://www.w3.org/2000/svg",
        "xmlns:xlink": "http://www.w3.org/1999/xlink",
        "width": f"{width}pt",
        "height": f"{height}pt",
        "font-family": "system-ui, 'DejaVu Sans', Arial, sans-serif",
    }
    paper = ET.Element("rect", {"width": width, "height": height, "fill": COLOURS["paper"]})
    root.insert(2, paper)  # after title and description
    file: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return file


def _parsed(text: bytes) -> ET.Element:
    """Return the tree without namespaces and indentation."""
    root = ET.fromstring(text)
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {_local(key): value for key, value in element.attrib.items()}
        element.tail = None
        if element.text and not element.text.strip() and element.tag != "text":
            element.text = None
    return root


def _local(name: str) -> str:
    for namespace, prefix in _NAMESPACES.items():
        name = name.replace(namespace, prefix)
    return name


def _unwrapped(element: ET.Element) -> Iterator[ET.Element]:
    """Yield the element without groups that only have an id, and without forbidden elements."""
    if element.tag in _OMITTED_ELEMENTS:
        return
    children = [part for child in element for part in _unwrapped(child)]
    if element.tag in ("g", "defs") and not children:
        return
    if element.tag == "g" and not set(element.attrib) - {"id"}:
        yield from children
        return
    element[:] = children
    yield element


def _references(element: ET.Element) -> Iterator[str]:
    for one in element.iter():
        for key in ("xlink:href", "clip-path"):
            found = _REFERENCE.search(one.get(key, ""))
            if found:
                yield found[1]


def _rename(element: ET.Element, names: Mapping[str, str]) -> None:
    """Rename the ids that are referred to, and remove the others."""
    own = element.attrib.pop("id", None)
    if own is not None and own in names:
        element.set("id", names[own])
    for key in ("xlink:href", "clip-path"):
        found = _REFERENCE.search(element.get(key, ""))
        if found:
            element.set(key, element.attrib[key].replace(found[1], names[found[1]]))


def _shorten(element: ET.Element) -> None:
    """Remove decimals that are too small to be visible."""
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    for key, decimals in _DECIMALS.items():
        if key in element.attrib:
            # A tenth of a point is too coarse for the shape of a marker.
            places = 2 if key == "d" and "id" in element.attrib else decimals
            element.attrib[key] = _rounded(element.attrib[key], places)
    if "d" in element.attrib:
        path = " ".join(element.attrib["d"].split())
        if not set(path) & set("CQ"):
            path = path.replace(" L ", " ")  # coordinates after M are lines by default
        element.attrib["d"] = re.sub(r" ?([A-Za-z]) ?", r"\1", path)
    if "xlink:href" in element.attrib:
        element.attrib["xlink:href"] = "".join(element.attrib["xlink:href"].split())


def _rounded(text: str, places: int) -> str:
    """Return a text with its fractions rounded.

    >>> _rounded("M 1.26 -0.04 L 2.0 3", 1)
    'M 1.3 0 L 2 3'
    """
    return _FRACTION.sub(lambda found: f"{round(float(found[0]), places) + 0:g}", text)


def _declarations(style: str) -> dict[str, str]:
    """Return a style as attributes in the page's colours and font."""
    pairs = ((part.strip() for part in one.partition(":")) for one in style.split(";"))
    return {
        key: _VARIABLES.get(value, value) for key, _, value in pairs if key not in _OMITTED_STYLES
    }


def _paint_masks(parent: ET.Element, name: str) -> None:
    """Turn the opacities of an image into a mask over the page's first line colour.

    A matrix then has the page's colours although its cells are pixels.
    """
    for k, image in enumerate(list(parent)):
        if image.tag != "image":
            continue
        scale = [
            float(found) for found in re.findall(r"-?\d+(?:\.\d+)?", image.get("transform", ""))
        ]
        a, _, _, d, x, y = scale
        mask = ET.Element("mask", {"id": f"{name}-mask{k}", "mask-type": "alpha"})
        mask.append(image)
        painted = {
            "x": _rounded(str(x), 2),
            "y": _rounded(str(y), 2),
            "width": _rounded(str(a * float(image.attrib["width"])), 2),
            "height": _rounded(str(d * float(image.attrib["height"])), 2),
            "fill": _VARIABLES[COLOURS["line-1"]],
            "mask": f"url(#{name}-mask{k})",
        }
        parent.remove(image)
        parent.insert(k, ET.Element("rect", painted))
        parent.insert(k, mask)


def _share_styles(parent: ET.Element) -> None:
    """Put neighbours of the same style into a group that has the style once."""
    groups = []
    for style, run in groupby(list(parent), key=lambda child: child.get("style")):
        members = list(run)
        if style is None or len(members) < 2 or parent.tag == "defs":
            groups.extend(members)
            continue
        group = ET.Element("g", {"style": style})
        for member in members:
            del member.attrib["style"]
            group.append(member)
        groups.append(group)
    parent[:] = groups


def learning_curve(p_given: Probabilities, p_other: Probabilities) -> str:
    """Return a small chart of p of the given label and the largest other p, both [epochs].

    NaN is a gap, for an epoch that did not see the example. It is an inline SVG of at most 600
    bytes, since a page holds hundreds. The page styles its paths by their classes: "given",
    "other", and "frame" at p = 0 and p = 1.
    """
    given, other = (np.asarray(p, np.float64).clip(0, 1) for p in (p_given, p_other))
    description = f"p of the given label {_ends(given)}, of another class {_ends(other)}"
    return (
        f'<svg class="curve" viewBox="0 0 {_CURVE_WIDTH} {_CURVE_HEIGHT}" '
        'preserveAspectRatio="none" '
        f'role="img" aria-label="{description}" fill="none" stroke-linecap="round">'
        f'<path class="frame" d="M0 0h{_CURVE_WIDTH}M0 {_CURVE_HEIGHT}h{_CURVE_WIDTH}"/>'
        f'<path class="other" d="{_curve_path(other)}" stroke="var(--line-1)"/>'
        f'<path class="given" d="{_curve_path(given)}" stroke="var(--line-2)"/></svg>'
    )


def means(p: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.float64]:
    """Return [≤ most] means over neighbouring epochs, NaN if none saw the example."""
    parts = np.array_split(p, min(len(p), most)) if len(p) else []
    known = (part[np.isfinite(part)].clip(0, 1) for part in parts)
    return np.array([float(part.mean()) if len(part) else math.nan for part in known])


def _ends(p: npt.NDArray[np.float64]) -> str:
    known = p[np.isfinite(p)]
    return f"{known[0]:.2f} → {known[-1]:.2f}" if len(known) else "not seen"


def _curve_path(p: npt.NDArray[np.float64]) -> str:
    """Return a path in whole units, relative to the previous point; it restarts after a gap.

    A single point is a line of zero length, which round ends make visible.
    """
    p = means(p, CURVE_POINTS)
    text, x, y = "", 0, 0
    for k, value in enumerate(p):
        if not np.isfinite(value):
            continue
        right = round(k * _CURVE_WIDTH / max(len(p) - 1, 1))
        down = round(_CURVE_HEIGHT * (1 - value))
        if k and np.isfinite(p[k - 1]):
            text += f"{right - x:+d}{down - y:+d}"
        else:
            continues = k + 1 < len(p) and np.isfinite(p[k + 1])
            text += f"M{right} {down}{'l' if continues else 'h0'}"
        x, y = right, down
    return text.replace("l+", "l").replace("+", " ")
