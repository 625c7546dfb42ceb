"""The texts of a drawn picture, which tests of pictures read."""

from __future__ import annotations

import re


def texts(picture) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", picture.svg)
