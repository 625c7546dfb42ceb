"""Airflow's connections to object stores, in the words of fsspec's libraries: s3fs, gcsfs and adlfs.

The keys are named as in the providers' own documentation (Amazon, Google, Microsoft Azure). What only their hooks can
do, such as assuming a role, needs the provider: Amazon's hook is used where it is installed. Anything else is refused,
since dropping it would reach the store as somebody else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnflow.graph.errors import ConfigError
from gnnflow.storage.access import Access

if TYPE_CHECKING:
    from airflow.sdk import Connection


def name_of(conn_id: str) -> str:
    """Return the name under which a connection's access is held."""
    return f"connection {conn_id}"


def access_of(connection: Connection) -> Access:
    """Return what a connection opens. Raises ConfigError for a kind or a key that cannot be used here."""
    kind = connection.conn_type or ""
    if kind not in _KINDS:
        raise ConfigError(
            f"is a connection of type {kind!r}, not of an object store",
            where=f"connection {connection.conn_id}",
            fix=f"Name one of type {', '.join(_KINDS)}.",
        )
    schemes, options_of = _KINDS[kind]
    options = {key: value for key, value in options_of(connection).items() if value not in (None, "", {})}
    return Access(name_of(connection.conn_id), {f"{scheme}://": options for scheme in schemes})


def _aws(connection: Connection) -> dict[str, Any]:
    """Return the options of s3fs."""
    extra = _extra(connection)
    service = (extra.get("service_config") or {}).get("s3") or {}
    client = {
        "region_name": extra.get("region_name"),
        "endpoint_url": service.get("endpoint_url") or extra.get("endpoint_url") or None,
        "verify": extra.get("verify"),
    }
    known = {"region_name", "endpoint_url", "verify", "service_config", "aws_session_token"}
    keys = {"key": connection.login, "secret": connection.password, "token": extra.get("aws_session_token")}
    asked = {key for key in extra if key in _AWS_KEYS or key.startswith("assume_role_with_")}
    if left := set(extra) - known - asked:
        fix = f"Remove it; these are read: {', '.join(sorted(known | _AWS_KEYS))}."
        raise _unknown(connection, left, "which is not read here", fix=fix)
    if asked:
        keys = _aws_keys(connection, asked)
    return {**keys, "client_kwargs": {key: value for key, value in client.items() if value is not None}}


def _aws_keys(connection: Connection, asked: set[str]) -> dict[str, Any]:
    """Return the keys that Amazon's hook finds: of a role, a profile or a file."""
    if find_spec("airflow.providers") is None or find_spec("airflow.providers.amazon") is None:
        fix = "Install apache-airflow-providers-amazon where tasks run, or remove it."
        raise _unknown(connection, asked, "which its provider's hook reads", fix=fix)
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

    found = AwsGenericHook(aws_conn_id=connection.conn_id).get_credentials()
    return {"key": found.access_key, "secret": found.secret_key, "token": found.token}


def _google(connection: Connection) -> dict[str, Any]:
    """Return the options of gcsfs; without a key it finds the machine's own credentials."""
    extra = _extra(connection)
    if left := set(extra) - {"keyfile_dict", "key_path", "project", "num_retries", "scope"}:
        raise _unknown(connection, left, fix="Give a key: keyfile_dict or key_path.")
    token = extra.get("keyfile_dict")
    if isinstance(token, str):
        token = json.loads(token)
    if token is None and (path := extra.get("key_path")):
        token = json.loads(Path(path).read_text())  # here: workers need no such file
    return {"project": extra.get("project"), "token": token}


def _azure(connection: Connection) -> dict[str, Any]:
    """Return the options of adlfs: a key of the account, or a client with its secret."""
    extra = _extra(connection)
    if text := extra.get("connection_string"):
        return {"connection_string": text, "account_name": _account_of(text)}
    direct = {key: extra.get(key) for key in ("account_name", "account_host", "sas_token", "tenant_id")}
    if left := set(extra) - {*direct, "account_key", "shared_access_key"}:
        raise _unknown(connection, left, fix="Give a key, a connection_string, a sas_token or a tenant_id.")
    host = (connection.host or "").rpartition("://")[2].partition(".")[0]
    if direct["tenant_id"]:
        keys = {"client_id": connection.login, "client_secret": connection.password}
    else:
        host = host or connection.login or ""
        keys = {"account_key": extra.get("account_key") or extra.get("shared_access_key") or connection.password}
    return {**direct, **keys, "account_name": direct["account_name"] or host}


def _account_of(text: str) -> str:
    """Return the account of a connection string of Azure: by name, else of its blob endpoint; empty if neither says."""
    pairs = [pair.partition("=") for pair in text.split(";")]
    held = {key.strip().lower(): value.strip() for key, _, value in pairs}
    endpoint = _BLOB_HOST.match(held.get("blobendpoint", "").rpartition("://")[2])
    return held.get("accountname") or (endpoint[1] if endpoint else "")


def _extra(connection: Connection) -> dict[str, Any]:
    """Return the keys of a connection's extra that have a value; older forms put the type before a name."""
    prefix = f"extra__{connection.conn_type}__"
    held = connection.extra_dejson.items()
    return {key.removeprefix(prefix): value for key, value in held if value not in (None, "", {})}


def _unknown(
    connection: Connection, keys: set[str], why: str = "which cannot be used without its provider's hook", *, fix: str
) -> ConfigError:
    return ConfigError(
        f"sets {', '.join(sorted(keys))}, {why}",
        where=f"connection {connection.conn_id}",
        fix=fix,
    )


_BLOB_HOST = re.compile(r"([a-z0-9]+)\.(?:z[0-9]+\.)?blob\.", re.IGNORECASE)
"""The beginning of an endpoint that Azure names by its account; a domain of one's own says nothing of it."""
_AWS_KEYS = {
    "assume_role_kwargs",
    "assume_role_method",
    "aws_access_key_id",
    "aws_secret_access_key",
    "profile_name",
    "role_arn",
    "session_kwargs",
}
"""Keys that say whose keys Amazon's hook gets; with `assume_role_with_...` all that it gets them by."""
_S3, _GS, _AZ = ("s3", "s3a"), ("gs", "gcs"), ("az", "abfs", "abfss", "adl", "wasb", "wasbs")
_KINDS: Mapping[str, tuple[tuple[str, ...], Callable[[Connection], dict[str, Any]]]] = {
    "aws": (_S3, _aws),
    "google_cloud_platform": (_GS, _google),
    "wasb": (_AZ, _azure),
    "adls": (_AZ, _azure),
}
