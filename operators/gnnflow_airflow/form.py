"""The trigger form: a config or a preset to begin with, the keys that most runs set, a text field for all others.

Parameters have the names of the command line (`train.lr`), so that the form, the API and `--set` agree; the API takes
every key of a config so. A key that a field and the settings both name is refused, since neither should win, and both
replace what the config or the preset says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from airflow.sdk import Param
from pydantic.fields import FieldInfo

from gnnflow.config import Config
from gnnflow.config.base import tagged_members
from gnnflow.config.experiments import drop_unfit
from gnnflow.config.loading import values_of
from gnnflow.config.messages import show
from gnnflow.config.sections import Sections
from gnnflow.config.yaml_text import read_yaml
from gnnflow.graph.errors import ConfigError
from gnnflow_airflow.presets import PRESETS

CONFIG, PRESET, SETTINGS, FANOUT = "config", "preset", "settings", "neighbors.sampling.fanout"
_FIELDS = ("name", "graph.nodes", "graph.edges", "model.kind", "train.epochs", "train.lr", FANOUT, "workspace")
_UNIFORM: dict[str, Any] = {"neighbors": {"sampling": {"kind": "uniform"}}}
_MAP_EXAMPLES = {
    "graph.nodes": "{account: accounts.parquet, device: devices.parquet}",
    "graph.edges": "{account__uses__device: uses.parquet}",
}
_MAPS_AND_LISTS = (*_MAP_EXAMPLES, FANOUT)
# Airflow would check values by their schema, and answer with "Bad Request" or a page of JSON schema. So our schemas say
# only what the form draws, and the first task checks all values, with the config's own messages: in draft 7 a `$ref`
# hides all other rules, and this one allows everything. All fields are of text, numbers too: in the form's field for
# numbers 1e-3 becomes 13 and -3 nothing, since it reads each keystroke. An empty field is no value.
_DRAWN = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$ref": "#/definitions/anything",
    "definitions": {"anything": {}},
    "type": ["string", "null"],
}


def form_params(*, configs: Sequence[str] = ()) -> dict[str, Param]:
    """Return the form's parameters, in its order. configs: the names of files to choose from."""
    first = "which the fields below and the settings replace."
    settings = (
        "All other keys of the configuration, or a whole config without what the fields name, as YAML. A key that a "
        "field names too is refused."
    )
    params = {}
    if configs:
        text = f"A file whose values the run begins with, {first}"
        params[CONFIG] = Param(None, **_DRAWN, title=CONFIG, enum=[*configs, None], description=text)
    text = f"Settings for a task, {first} Without a config and a preset a run has the defaults."
    params[PRESET] = Param(None, **_DRAWN, title=PRESET, enum=[*PRESETS, None], description=text)
    params |= {key: Param(None, **_DRAWN, title=_breakable(key), **_described(key)) for key in _FIELDS}
    params[SETTINGS] = Param(None, **_DRAWN, title="more settings (YAML)", format="multiline", description=settings)
    return params


def _breakable(key: str) -> str:
    """Return a key that a narrow form breaks after a dot (by a zero-width space), and not within a word."""
    return key.replace(".", ".\u200b")


def _described(key: str) -> dict[str, Any]:
    """Return what the form says of a field."""
    if key == "model.kind":
        kinds = tagged_members(Config.model_fields["model"])
        text = "; ".join(
            f"{kind}: {held.model_fields[held.tag].description}".rstrip(".") for kind, held in kinds.items()
        )
        return {"examples": list(kinds), "description": f"{text}."}
    field = _field(key)
    said = [str(field.description)]
    if key == FANOUT:
        said.append("Drawn uniformly, unless the config, the preset or the settings name another kind.")
    elif key in _MAP_EXAMPLES:
        said.append(f"A map is typed as YAML: {_MAP_EXAMPLES[key]}.")
    elif key.startswith("train."):
        said.append(
            f"Empty means {show(field.get_default(call_default_factory=True))}, or what the config or the preset says."
        )
    return {"description": " ".join(said)}


def _field(key: str) -> FieldInfo:
    """Return a field of the config, in a section of several kinds the first kind's that has it."""
    fields: Mapping[str, FieldInfo] = Config.model_fields
    *path, name = key.split(".")
    for part in path:
        below: Any = fields[part].annotation
        sections = tagged_members(fields[part]).values() or [below]
        fields = {each: field for held in reversed([*sections]) for each, field in held.model_fields.items()}
    return fields[name]


def nested(values: Mapping[str, Any], *, chosen: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the values of a form as nested keys: `train.lr` becomes lr in train. Unknown keys stay.

    chosen: the values of the config to begin with. Raises ConfigError if a key is named twice, if a key has a value and
    another key sets a part of it, for an unknown preset, a preset with a config, and settings that are not YAML.
    """
    fields = {
        key: _read_typed(key, value)
        for key, value in values.items()
        if key not in {CONFIG, PRESET, SETTINGS} and not (value is None and key in _FIELDS)
    }
    tree: dict[str, Any] = {}
    for key, value in (*fields.items(), *_settings(values.get(SETTINGS)).items()):
        *path, name = key.split(".")
        given = {name: value}
        for part in reversed(path):
            given = {part: given}
        _add(tree, given, key=key, where="")
    base = _laid_over(_UNIFORM if FANOUT in fields else {}, chosen or _preset(values.get(PRESET)))
    if chosen and values.get(PRESET):
        raise ConfigError("a config is chosen too", where=PRESET, fix="Begin with one of the two.")
    # with a graph, so that a form without tables is told their two keys
    return {"graph": {}, **_laid_over(drop_unfit(Sections, base, tree), tree)}


def _preset(name: Any) -> dict[str, Any]:
    """Return the values of a preset, none where none is chosen. Raises ConfigError for an unknown name."""
    if not name:
        return {}
    if not isinstance(name, str) or name not in PRESETS:
        raise ConfigError(f"{show(name)} is not a preset", where=PRESET, fix=f"Choose one of: {', '.join(PRESETS)}.")
    return PRESETS[name]


def _read_typed(key: str, value: Any) -> Any:
    """Return a field's value: a list or a map where its text is one."""
    is_text = isinstance(value, str) and key in _MAPS_AND_LISTS and value.strip().startswith(("[", "{"))
    return read_yaml(value, source=key) if is_text else value


def _settings(given: Any) -> Mapping[str, Any]:
    """Return the keys of the settings, which the API may send as a map."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}
    return given if isinstance(given, Mapping) else values_of(str(given), source=SETTINGS)


def _add(branch: dict[str, Any], given: Mapping[str, Any], *, key: str, where: str) -> None:
    """Add nested values to others. Raises ConfigError for a value that both have."""
    for name, value in given.items():
        place = f"{where}.{name}".lstrip(".")
        if name not in branch:
            branch[name] = deepcopy(value)
        elif isinstance(branch[name], dict) and isinstance(value, Mapping):
            _add(branch[name], value, key=key, where=place)
        elif isinstance(branch[name], dict) or isinstance(value, Mapping):
            raise ConfigError(
                f"has both a value and parts of a map ({key})",
                where=place,
                fix=f"Give {place} once: as a value, or as a map where it takes one.",
            )
        else:
            raise ConfigError("is named twice", where=place, fix="Name it in a field or in the settings, not in both.")


def _laid_over(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested values with others in their place where both have a key."""
    held = deepcopy(dict(base))
    for name, value in given.items():
        is_map = isinstance(value, Mapping) and isinstance(held.get(name), Mapping)
        held[name] = _laid_over(held[name], value) if is_map else deepcopy(value)
    return held
