"""The pairs of first mistakes that are not told together, by reason."""

from __future__ import annotations

# no answer can know the second: a table, its rows, its target or its labels cannot be read
UNKNOWN: tuple[tuple[str, str], ...] = (
    (
        (
            "a file of another program | a folder of two formats | a folder of two tables | a folder without tables | "
            "a missing file | a secret in a URL | a variable that is not set"
        ),
        (
            "a class below zero | a feature that is not there | a metric of other labels | a number of classes for "
            "numbers | a pattern of nothing | an empty table | an end that is no node | an id twice | an id written "
            "otherwise | another word for a split | classes numbered with gaps | classes of other names | dates of "
            "another country | edges too few to hold out | exclude takes all | ids as floats | ids of another name | "
            "ids of two types | labels of another name | labels that are all null | lists of two lengths | more bad "
            "rows than are set aside | more partitions than nodes | names as numbers | no features named | numbers as "
            "labels of classes | numbers of splits | one class | one class in train"
        ),
    ),
    (
        "edges as one path | relations as a list",
        (
            "a foreign key of another type | a foreign key of no node | a pattern of nothing in a type | a relation "
            "as the target of nodes | a target without a table | a type without table and ids | a weight that is no "
            "number | an attribute that its relation has not | an attribute that no relation has | an end that is no "
            "node of its type | ends in each other's place | ends of one relation of another name | fan-outs for some "
            "relations | ids as text in one table | labels of edges without a column | links by the metric of nodes | "
            "links of a relation without edges | links of no relation | no table has a shared feature | one time for "
            "all | splits of edges without a column | times that are no dates"
        ),
    ),
    (
        "links of a relation without edges",
        (
            "a path against the edges | a relation as the target of nodes | a split of another name | a target "
            "without a table | labels of a type that are all null | links by the metric of nodes | links of no "
            "relation | no edges to the target | no row in valid | numbers of a type as classes | one class of a type "
            "in train | the label as a feature of its type"
        ),
    ),
    (
        "an empty table",
        (
            "a metric of other labels | a pattern of nothing | an end that is no node | an id twice | an id written "
            "otherwise | edges too few to hold out | exclude takes all | ids of two types | more bad rows than are "
            "set aside | more partitions than nodes | names as numbers | no features named"
        ),
    ),
    (
        "an empty table of a type",
        (
            "a pattern of nothing in a type | a split of another name | an attribute that no relation has | an end "
            "that is no node of its type | an id twice in a type | ends in each other's place | ids as text in one "
            "table | no table has a shared feature | shares of text"
        ),
    ),
    (
        "a target without a table",
        (
            "a split of another name | an empty table of a type | an id twice in a type | ends in each other's place "
            "| labels of a type that are all null | no row in valid | numbers of a type as classes | one class of a "
            "type in train | shares of text"
        ),
    ),
    (
        "numbers of splits",
        (
            "a class below zero | a number of classes for numbers | classes numbered with gaps | classes of other "
            "names | labels that are all null | numbers as labels of classes | one class | one class in train"
        ),
    ),
    (
        "a missing table of a type",
        (
            "a foreign key of another type | a foreign key of no node | a null id | a pattern of nothing in a type | "
            "an attribute that no relation has | no table has a shared feature"
        ),
    ),
    (
        "another word for a split",
        "classes numbered with gaps | one class | one class in train",
    ),
    (
        (
            "a filter that no target passes | a relation as the target of nodes | a target without labels | labels of "
            "edges without a column | links by the metric of nodes | links of no relation | no target | one time for "
            "all | splits of edges without a column | times that are no dates"
        ),
        "a target without a table | labels of a type that are all null",
    ),
    (
        "labels of another name",
        "another word for a split | numbers of splits",
    ),
    (
        "labels of a type that are all null",
        "a split of another name | no row in valid",
    ),
    (
        "a target that is no type",
        "edges as one path | relations as a list",
    ),
    (
        "a split of another name",
        "no row in valid | one class of a type in train",
    ),
    (
        "numbers of a type as classes",
        "a split of another name",
    ),
    (
        "no row in valid",
        "one class of a type in train",
    ),
    (
        "a split by a time that is not there | edges too few to hold out | more bad rows than are set aside",
        "labels that are all null",
    ),
    (
        "labels that are all null",
        "another word for a split",
    ),
    (
        "a number of classes for numbers",
        "numbers as labels of classes",
    ),
    (
        "a key that edge tables have not",
        "a target without a table",
    ),
)
# the second is a consequence, or the task does not read what it is about, or both together make a third
FOLLOWS: tuple[tuple[str, str], ...] = (
    (
        "a split by a time that is not there | edges too few to hold out",
        (
            "a class below zero | a number of classes for numbers | another word for a split | classes numbered with "
            "gaps | classes of other names | edges too few to hold out | labels of another name | numbers as labels "
            "of classes | numbers of splits | one class | one class in train | the label as a feature"
        ),
    ),
    (
        "a filter that no target passes",
        (
            "a path against the edges | a relation as the target of nodes | a split of another name | a weight that "
            "is no number | an end that is no node of its type | links of no relation | no edges to the target | no "
            "row in valid | numbers of a type as classes | one class of a type in train | the label as a feature of "
            "its type"
        ),
    ),
    (
        "more bad rows than are set aside",
        (
            "a class below zero | a number of classes for numbers | an id twice | another word for a split | classes "
            "of other names | dates of another country | edges too few to hold out | lists of two lengths | names as "
            "numbers"
        ),
    ),
    (
        (
            "a relation as the target of nodes | a target without labels | labels of edges without a column | links "
            "by the metric of nodes | links of no relation | no target | one time for all | splits of edges without a "
            "column | times that are no dates"
        ),
        (
            "a path against the edges | a relation as the target of nodes | a split of another name | links of no "
            "relation | no edges to the target | no row in valid | numbers of a type as classes | one class of a type "
            "in train | the label as a feature of its type"
        ),
    ),
    (
        "shares in percent",
        "another word for a split | edges too few to hold out | numbers of splits | one class in train",
    ),
    (
        "labels of another name | numbers of splits",
        "a metric of other labels",
    ),
    (
        "a negative weight | ends of another name | ids of another name | ids of two types",
        "more bad rows than are set aside",
    ),
    (
        "a path against the edges",
        "edge attention without attributes",
    ),
    (
        "a key of another strategy",
        "a split by a time that is not there",
    ),
)
# the second could be said, and is not yet
OPEN: tuple[tuple[str, str], ...] = (
    (
        "ids of one type of another name",
        (
            "a foreign key of another type | a foreign key of no node | an end that is no node of its type | ends in "
            "each other's place | fan-outs for some relations | ids as text in one table | links of no relation"
        ),
    ),
    (
        "a table that is no type",
        (
            "a filter by a column that is not there | a foreign key of another type | a foreign key of no node | a "
            "foreign key that is not there | a pattern of nothing in a type | an attribute that no relation has | no "
            "table has a shared feature"
        ),
    ),
    (
        "ids of another name",
        (
            "an end that is no node | an id written otherwise | edges too few to hold out | ids of two types | no "
            "features named"
        ),
    ),
    (
        "ends of another name | ids of two types",
        "an end that is no node | an id written otherwise | edges too few to hold out | tables in each other's place",
    ),
    (
        "a null id",
        "a foreign key of another type | a foreign key of no node | fan-outs for some relations | links of no relation",
    ),
    (
        "a filter by a column that is not there",
        (
            "a foreign key of no node | a pattern of nothing in a type | an attribute that no relation has | no table "
            "has a shared feature"
        ),
    ),
    (
        "ids as floats",
        "edges too few to hold out | ids of two types | no features named",
    ),
    (
        "no edges to the target",
        "ends of one relation of another name | fan-outs for some relations",
    ),
    (
        "an attribute that no relation has",
        "a pattern of nothing in a type | edge attention without attributes",
    ),
    (
        "a foreign key that is not there",
        "a foreign key of another type | a foreign key of no node",
    ),
    (
        "tables in each other's place",
        "ids of another name",
    ),
    (
        "no table has a shared feature",
        "an attribute that no relation has",
    ),
    (
        "hops of other layers",
        "fan-outs for some relations",
    ),
    (
        "a pattern of nothing | exclude takes all",
        "a kind of a column that is no feature",
    ),
    (
        "an end that is no node | an id written otherwise",
        "edges too few to hold out",
    ),
    (
        "an id twice",
        "more partitions than nodes",
    ),
    (
        "an attribute that its relation has not",
        "edge attention without attributes",
    ),
    (
        "a split of another name",
        "splits of edges without a column",
    ),
    (
        "a misspelt kind",
        "a key of another kind",
    ),
    (
        "a metric of other labels",
        "numbers as labels of classes",
    ),
    (
        "a kind for a column of no type",
        "shares of text",
    ),
    (
        "a key that edge tables have not",
        "a type without table and ids",
    ),
)

_HIDDEN = [tuple({*part.split(" | ")} for part in group) for group in (*UNKNOWN, *FOLLOWS, *OPEN)]


def are_hidden(one: str, other: str) -> bool:
    """Return whether two mistakes are a pair that is not told together."""
    return any((one in first and other in second) or (other in first and one in second) for first, second in _HIDDEN)


def names() -> set[str]:
    """Return the names of all mistakes in these pairs."""
    return set().union(*(part for group in _HIDDEN for part in group))
