"""Drawings as a page can hold them: small, in the page's colours and font, without clashing names.

A page says its colours in CSS variables, `--ink`, `--muted`, `--paper` and `--line-1` … `--line-6`.
Where it says none, and in a file of its own, a drawing has the colours of `COLOURS`.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from itertools import groupby

# Of these the page's colours take the place, so no two may be the same.
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

_VARIABLES = {colour: f"var(--{name},{colour})" for name, colour in COLOURS.items()}
_VARIABLE = re.compile(r"var\(--[a-z0-9-]+,(#[0-9a-f]{6})\)")
_REFERENCE = re.compile(r"^(?:url\()?#([\w.-]+)\)?$")
_FRACTION = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")
_NAMESPACES = {"{http://www.w3.org/2000/svg}": "", "{http://www.w3.org/1999/xlink}": "xlink:"}
_DECIMALS = {"d": 1, "transform": 4, "x": 2, "y": 2}
_UNSAID = ("", "font-family", "stroke-dashoffset")
_LEFT_OUT = ("metadata", "style")  # a style sheet would be the whole page's


def inline(drawn: bytes, *, name: str, title: str, alt: str) -> str:
    """A drawing of matplotlib as an element of a page.

    It is as wide as the page lets it be, has `role="img"` and says its title and alternative text.
    Every id begins with `name`, so that several fit on a page; nothing refers to anything outside.
    It has no style sheet and no style attribute, so that a strict policy of the page can forbid
    them; colours and letters are said in attributes, the font is the page's.

    Args:
        drawn: an SVG file in the colours of `COLOURS`.
        name: letters, digits, _ and -, another one for every figure of a page.
        title: of the figure.
        alt: what is seen in it.
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
    """What `inline` gives as a file of its own: fixed colours, a background, a size and a font.

    Not every program that reads SVG knows variables.
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
    """The tree without namespaces and indentation."""
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
    """The element without the groups that only bear a name, and without what a page must not."""
    if element.tag in _LEFT_OUT:
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
    """Ids that are referred to get the figure's own, others go."""
    own = element.attrib.pop("id", None)
    if own is not None and own in names:
        element.set("id", names[own])
    for key in ("xlink:href", "clip-path"):
        found = _REFERENCE.search(element.get(key, ""))
        if found:
            element.set(key, element.attrib[key].replace(found[1], names[found[1]]))


def _shorten(element: ET.Element) -> None:
    """No more decimals than can be seen."""
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    for key, decimals in _DECIMALS.items():
        if key in element.attrib:
            # The shape of a marker is smaller than a tenth of a point is wide.
            places = 2 if key == "d" and "id" in element.attrib else decimals
            element.attrib[key] = _rounded(element.attrib[key], places)
    if "d" in element.attrib:
        path = " ".join(element.attrib["d"].split())
        if not set(path) & set("CQ"):
            path = path.replace(" L ", " ")  # what follows M is a line anyway
        element.attrib["d"] = re.sub(r" ?([A-Za-z]) ?", r"\1", path)
    if "xlink:href" in element.attrib:
        element.attrib["xlink:href"] = "".join(element.attrib["xlink:href"].split())


def _rounded(text: str, places: int) -> str:
    """The text with its fractions to so many decimals.

    >>> _rounded("M 1.26 -0.04 L 2.0 3", 1)
    'M 1.3 0 L 2 3'
    """
    return _FRACTION.sub(lambda found: f"{round(float(found[0]), places) + 0:g}", text)


def _declarations(style: str) -> dict[str, str]:
    """A style in the page's colours and font."""
    pairs = ((part.strip() for part in one.partition(":")) for one in style.split(";"))
    return {key: _VARIABLES.get(value, value) for key, _, value in pairs if key not in _UNSAID}


def _paint_masks(parent: ET.Element, name: str) -> None:
    """An image's opacities become a mask over the page's first line colour.

    So a matrix has the page's colours although its cells are pixels.
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
    """Neighbours of the same style become a group that has it once."""
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
