"""Finds and masks secrets in URLs and texts.

A URL carries secrets in two places: before an @ (`s3://user:password@bucket`, `https://TOKEN@host`, also with the
scheme left out or one slash missing) and in parameters, where a link is signed (`?sig=`, `?token=`, `X-Amz-Signature`)
or a session goes on (`;jsessionid=`). Neither may reach a message, a log, a manifest or a report.
"""

from __future__ import annotations

import re

# What precedes a host: a scheme, or two slashes at the start, which take whatever scheme is in use.
_SCHEME = r"[A-Za-z][\w+.-]*:/+|(?<![\w+.:/-])//+"
# user:password@ after it. A pasted password may hold a slash; host:port/path@version has no password.
_PASSWORD = re.compile(rf"(?P<scheme>{_SCHEME})[^/?#@:\s]*:(?!\d+([/?#]|$))\S*@")
# In addresses of these schemes a name before the @ is part of the place: a container or a login name.
_NAMES_A_PLACE = r"(?:abfss?|wasbs?|sftp|ssh|hdfs|smb)://"
_USER = re.compile(rf"(?P<scheme>(?!{_NAMES_A_PLACE})(?<![\w+.-])(?:{_SCHEME}))[^/?#@:\s]+@")
# Parameters whose names end so: sig, X-Amz-Signature, api_key, AWSAccessKeyId, access_token, jsessionid ...
_SIGNED = re.compile(
    r"(?P<name>[?&;#][^=&;#?\s'\"]*(?:sig|signature|key|key[-_]?id|token|secret|passw(?:or)?d|pwd|credentials?|auth|jwt"
    r"|sess(?:ion)?(?:[-_]?id)?))"
    r"=[^&;#\s'\"<>)\]]+",
    re.IGNORECASE,
)
_DOTS = "..."


def find_secret(uri: str) -> str:
    """Return the kind of secret that a URL holds, as a phrase; "" where it holds none."""
    if "@" in uri and _PASSWORD.search(uri):
        return "a user and password"
    if "@" in uri and _USER.search(uri):
        return "a user or token before the @"
    return "a signature, key or session in its parameters" if "=" in uri and _SIGNED.search(uri) else ""


def mask_secrets(text: str) -> str:
    """Return the text with the secrets of its URLs replaced by dots."""
    if "/" in text:
        text = _PASSWORD.sub(rf"\g<scheme>{_DOTS}@", text)
        text = _USER.sub(rf"\g<scheme>{_DOTS}@", text)
    return _SIGNED.sub(rf"\g<name>={_DOTS}", text) if "=" in text else text
