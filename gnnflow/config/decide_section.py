"""The key `task.decide`: how decisions between classes are chosen on the valid split.

A union tagged by `kind`. docs/decisions/0047-decisions-between-classes.md says what it means for more than two classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from gnnflow.config.base import Integer, Number, Section, problem
from gnnflow.graph.errors import TrainingError, listed
from gnnflow.graph.labels import LabelKind, names_of_classes

_TWO = 2
_MOST_COST_CLASSES = 1000  # a matrix of more would be larger than most models
_MOST_LISTED = 10


def _as_class(value: Any) -> Any:
    """Return the name of a class that is written as its number."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


ClassName = Annotated[str, BeforeValidator(_as_class), Field(min_length=1, max_length=1024)]
Cost = Annotated[Number, Field(ge=0)]
_POSITIVE = (
    "The class that is decided for or against, by its name, or its number where classes have none. Needed where labels "
    "are of more than two classes; of two it is class 1, the rarer one of named classes. Where it is named, "
    "average_precision and roc_auc are of this class."
)


class AutoDecision(Section):
    """The threshold with the highest F1 where labels are of two classes, else the likeliest class."""

    kind: Literal["auto"] = Field(
        "auto", description="f1 where labels are of two classes; of more the likeliest class is decided."
    )


class F1Decision(Section):
    """The threshold with the highest F1 on valid."""

    kind: Literal["f1"] = Field(
        "f1",
        description="The threshold with the highest F1 of the class on valid. Of equally good thresholds the highest.",
    )
    positive: ClassName | None = Field(None, description=_POSITIVE)


class CostDecision(Section):
    """The threshold with the lowest cost on valid, or the class of least expected cost."""

    kind: Literal["cost"] = Field(
        "cost",
        description="With miss: the threshold with the lowest cost of misses and false alarms on valid. With costs: "
        "the class of least expected cost, by probabilities that are fitted to valid.",
    )
    miss: Number | None = Field(None, gt=0, description="Cost of a target of the class that is decided against.")
    false_alarm: Number = Field(1.0, gt=0, description="Cost of a target of another class that is decided for.")
    positive: ClassName | None = Field(None, description=_POSITIVE)
    costs: dict[ClassName, Cost | dict[ClassName, Cost]] | None = Field(
        None,
        min_length=1,
        description="Instead of miss: for a target's class the cost of deciding another one, a number or one for each "
        "decided class; every other mistake costs 1. {ring: 50, mule: {ring: 5}}",
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.costs is None and self.miss is None:
            raise problem("cost needs miss or costs", key="miss", fix="Give miss, for one class against the others.")
        if self.costs is None:
            return self
        for key in ("miss", "positive", "false_alarm"):
            # a stored config holds every key, so a default says nothing
            if getattr(self, key) != type(self).model_fields[key].default:
                raise problem(f"costs are of all classes, and {key} is of one", key=key, fix="Leave it out.")
        for name, of_class in self.costs.items():
            if isinstance(of_class, dict) and name in of_class:
                raise problem(
                    f"a target of class {name} that is decided as {name} costs nothing",
                    key="costs",
                    fix="Leave it out.",
                )
        return self


class PrecisionDecision(Section):
    """The threshold that finds most targets of a class at a precision."""

    kind: Literal["precision"] = Field(
        "precision",
        description="The threshold that finds most targets of the class on valid at a precision; none where no "
        "threshold has it.",
    )
    at_least: Number = Field(gt=0, le=1, description="Lowest precision: share of the class among those decided for.")
    positive: ClassName | None = Field(None, description=_POSITIVE)


class TopDecision(Section):
    """The threshold that a number of targets of valid reach."""

    kind: Literal["top_k"] = Field(
        "top_k",
        description="The threshold that the k likeliest targets of valid reach, and those as likely as the last of "
        "them.",
    )
    k: Integer = Field(ge=1, description="Labelled targets of valid that are decided for.")
    positive: ClassName | None = Field(None, description=_POSITIVE)


def _as_section(value: Any) -> Any:
    """Return the section that a word stands for: its kind, or precision>=0.9."""
    if not isinstance(value, str):
        return value
    kind, found, least = (part.strip() for part in value.partition(">="))
    if not found:
        return {"kind": kind}
    try:
        return {"kind": kind, "at_least": float(least)}
    except ValueError:
        return value


DecideConfig = Annotated[
    AutoDecision | F1Decision | CostDecision | PrecisionDecision | TopDecision,
    Field(discriminator="kind"),
    BeforeValidator(_as_section),
]

_RULES: TypeAdapter[DecideConfig] = TypeAdapter(DecideConfig)


def stored_decide(config: Mapping[str, Any]) -> DecideConfig:
    """Return the rule of a stored config, whose other keys may be of an older version."""
    return _RULES.validate_python(config.get("task", {}).get("decide", "auto"))


DECIDE = (
    "How decisions are chosen on valid: a threshold of one class (of two, or named against the others), or the class "
    "of least expected cost. A word stands for its kind, and precision>=0.9 for that precision. Of equally good "
    "thresholds it is the highest. It is stored with the model, and predictions have the column decision."
)


def positive_of(decide: DecideConfig, names: Sequence[str]) -> int | None:
    """Return the number of the class that is decided for or against; None where one of several is decided.

    names: of all classes. Raises TrainingError for a class that is none of them.
    """
    named = named_class(decide)
    if named is not None:
        return _number_of(named, names, where="task.decide.positive")
    return 1 if len(names) == _TWO else None


def named_class(decide: DecideConfig) -> str | None:
    """Return the class that a rule names; None where it names none."""
    return None if isinstance(decide, AutoDecision) else decide.positive


def cost_matrix(decide: DecideConfig, names: Sequence[str]) -> tuple[tuple[float, ...], ...]:
    """Return the cost of deciding a class (column) for a target of another (row); empty for rules without costs.

    names: of all classes. Raises TrainingError for a class that is none of them.
    """
    if not isinstance(decide, CostDecision) or decide.costs is None:
        return ()
    matrix = [[float(row != column) for column in range(len(names))] for row in range(len(names))]
    for name, of_class in decide.costs.items():
        row = _number_of(name, names, where="task.decide.costs")
        if isinstance(of_class, dict):
            for decided, cost in of_class.items():
                matrix[row][_number_of(decided, names, where=f"task.decide.costs.{name}")] = cost
        else:
            matrix[row] = [of_class if column != row else 0.0 for column in range(len(names))]
    return tuple(map(tuple, matrix))


def check_decide(
    decide: DecideConfig, label_kind: LabelKind, num_classes: int | None, *, class_names: Sequence[str] | None = None
) -> None:
    """Raise TrainingError where a rule of `task.decide` does not fit the labels.

    num_classes, class_names: None where they are not known yet.
    """
    if decide.kind == "auto":
        return
    if label_kind != "single":
        raise TrainingError(
            f"{decide.kind} decides between classes, and does not support {label_kind} labels",
            where="task.decide.kind",
            fix="Leave task.decide out.",
        )
    if num_classes is None:
        return
    has_costs = isinstance(decide, CostDecision) and decide.costs is not None
    if num_classes != _TWO and decide.positive is None and not has_costs:
        known = "" if class_names is None else f" ({_listed(names_of_classes(class_names, num_classes))})"
        raise TrainingError(
            f"{decide.kind} decides for one class, and the labels are of {num_classes} classes{known}",
            where="task.decide.positive",
            fix="Name the class, or leave task.decide out: the likeliest class is then decided.",
        )
    if has_costs and num_classes > _MOST_COST_CLASSES:
        raise TrainingError(
            f"costs are between at most {_MOST_COST_CLASSES:,} classes, and the labels are of {num_classes:,}",
            where="task.decide.costs",
            fix="Name one class with task.decide.positive, and give miss and false_alarm.",
        )
    if class_names is not None:
        every = names_of_classes(class_names, num_classes)
        positive_of(decide, every)
        cost_matrix(decide, every)


def _number_of(name: str, names: Sequence[str], *, where: str) -> int:
    if name in names:
        return names.index(name)
    raise TrainingError(
        f"{name!r} is not a class of the labels ({_listed(names)})",
        where=where,
        fix="Write a class as the label column does.",
    )


def _listed(names: Sequence[str]) -> str:
    return listed(names, at_most=_MOST_LISTED)
