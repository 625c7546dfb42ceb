"""The pairs of first mistakes that are not told together, by reason."""

from __future__ import annotations

# no answer can know the second: a table, its rows, its target or its labels cannot be read
UNKNOWN: tuple[tuple[str, str], ...] = (
    (
        (
            "a file of another program | a folder of two formats | a folder of two tables | a folder without tables | "
            "a missing file | a secret in a URL | a separator that is not there | a variable that is not set"
        ),
        "decisions between numbers | decisions between three classes | decisions for a class that is not there",
    ),
    # labels are counted by split
    (
        "decisions for a class that is not there",
        "a split by dates of another form | an empty table | numbers of splits",
    ),
    (
        "decisions between three classes",
        "a split by dates of another form | another word for a split | numbers of splits",
    ),
    # a table that cannot be read, which later also shows these
    (
        (
            "a file of another program | a folder of two formats | a folder of two tables | a folder without tables | "
            "a missing file | a secret in a URL | a separator that is not there | a variable that is not set"
        ),
        (
            "a split by dates of another form | a split without a label | classes numbered from one | several values "
            "without a separator"
        ),
    ),
    # no row is in a split until the times are read, and a time is read of labelled rows alone
    (
        "a split by dates of another form",
        "classes numbered with gaps | labels of another name | one class | one class in train",
    ),
    (
        (
            "a file of another program | a folder of two formats | a folder of two tables | a folder without tables | "
            "a missing file | a secret in a URL | a separator that is not there | a variable that is not set"
        ),
        (
            "a class below zero | a feature that is not there | a metric of other labels | a number of classes for "
            "numbers | an empty table | an end that is no node | an id twice | an id written otherwise | another word "
            "for a split | classes numbered with gaps | classes of other names | dates of another country | exclude "
            "takes all | ids as floats | ids of another name | ids of two types | labels of another name | labels "
            "that are all null | lists of two lengths | more bad rows than are set aside | names as numbers | no "
            "features named | numbers as dates | numbers as labels of classes | numbers of splits | one class | one "
            "class in train"
        ),
    ),
    (
        "a missing table of a type",
        "ids of another name beside a foreign key",
    ),
    (
        "a target that is no type",
        "a target without a table",
    ),
    # all ids are nodes of a type without a table, of any type; no mistake of a table that the config does not name
    (
        "a relation of a type that is not there | features of a type without a table",
        (
            "a foreign key of another type | a foreign key of no node | a null id | ids of another name beside a "
            "foreign key"
        ),
    ),
    # no values show which column holds the ids
    (
        "ids of another name beside a foreign key",
        "a foreign key of another type | a foreign key of no node",
    ),
    (
        "edges as one path | relations as a list",
        (
            "a foreign key of another type | a foreign key of no node | a relation as the target of nodes | a target "
            "without a table | a type without table and ids | a weight that is no number | an attribute that its "
            "relation has not | an attribute that no relation has | an end that is no node of its type | ends in each "
            "other's place | ends of one relation of another name | fan-outs for some relations | ids as text in one "
            "table | labels of edges without a column | links by the metric of nodes | links of a relation without "
            "edges | links of no relation | one time for all | splits of edges without a column | times that are no "
            "dates | times of another name | a relation of a type that is not there | features of a type without a "
            "table | ids of another name beside a foreign key"
        ),
    ),
    (
        "a pattern of nothing | more partitions than nodes",
        (
            "a file of another program | a folder of two formats | a folder without tables | a missing file | a "
            "secret in a URL | a separator that is not there | a variable that is not set"
        ),
    ),
    (
        "a target without a table",
        (
            "a split of another name | an empty table of a type | an id twice in a type | ends in each other's place "
            "| labels of a type that are all null | no row in valid | no target | numbers of a type as classes | one "
            "class of a type in train | shares of text"
        ),
    ),
    (
        "an empty table",
        (
            "a metric of other labels | an end that is no node | an id twice | an id written otherwise | ids "
            "of two types | more bad rows than are set aside | names as numbers"
        ),
    ),
    (
        "another word for a split | numbers of splits",
        "classes numbered with gaps | labels of another name | one class | one class in train",
    ),
    (
        "a missing table of a type",
        (
            "a foreign key of another type | a foreign key of no node | a null id | a pattern of nothing in a type | "
            "no table has a shared feature"
        ),
    ),
    (
        "an empty table of a type",
        ("an id twice in a type | ends in each other's place | no table has a shared feature | shares of text"),
    ),
    (
        "a split of another name",
        "no row in valid | one class of a type in train",
    ),
    (
        "labels of a type that are all null",
        "no row in valid | no target",
    ),
    (
        "ids of two types",
        "edges too few to hold out",
    ),
    (
        "numbers as labels of classes",
        "a number of classes for numbers",
    ),
    (
        "no row in valid",
        "one class of a type in train",
    ),
)
# the second is a consequence, or no mistake beside the first; or the task does not read what it is about; or both
# together make a third
FOLLOWS: tuple[tuple[str, str], ...] = (
    # links have no decisions, and what both mistakes say of the labels is one mistake or a third
    (
        "a split by a time that is not there | edges too few to hold out",
        (
            "decisions by a part of the costs | decisions by no rule | decisions between three classes | "
            "decisions for a class that is not there"
        ),
    ),
    # the classes are others
    (
        "decisions for a class that is not there",
        (
            "a class below zero | classes numbered from one | classes numbered with gaps | classes of other names | "
            "labels of another name | numbers as labels of classes | one class"
        ),
    ),
    (
        "decisions between numbers",
        "a metric of other labels | a number of classes for numbers",
    ),
    (
        "decisions by no rule",
        "numbers as labels of classes",
    ),
    # the task reads no such labels, splits, weights or kinds
    (
        "times of another name",
        (
            "a path against the edges | a relation as the target of nodes | a split of another name | a target "
            "without a table | labels of a type that are all null | no edges to the target | no row in valid | "
            "numbers of a type as classes | one class of a type in train | one time for all | the label as a feature "
            "of its type | times that are no dates"
        ),
    ),
    (
        "a split by a time that is not there | edges too few to hold out",
        "a split by dates of another form | a split without a label | classes numbered from one",
    ),
    (
        "a split by dates of another form",
        "a split without a label | another word for a split",
    ),
    (
        "weights as text",
        "a negative weight | a weight with a comma",
    ),
    (
        "a kind of one type's column",
        "a target without a table | no table has a shared feature",
    ),
    # the first shows one fault of a table, or leaves no row that the second is about
    (
        "a split without a label",
        "another word for a split | more bad rows than are set aside | numbers of splits | shares in percent",
    ),
    (
        "classes numbered from one",
        "more bad rows than are set aside",
    ),
    # both are mended by the same line, or their columns are each other's
    (
        "ends under other words",
        "ends of another name | one column for both ends",
    ),
    (
        "a word for true",
        "no edges to the target",
    ),
    (
        "weights as text",
        "sampling by weights without any",
    ),
    (
        (
            "a filter that no target passes | a target without labels | labels of edges without a column | links by "
            "the metric of nodes | links of a relation without edges | links of no relation | one time for all | "
            "splits of edges without a column | times that are no dates"
        ),
        (
            "a path against the edges | a split of another name | a target without a table | labels of a type that "
            "are all null | no edges to the target | no row in valid | numbers of a type as classes | one class of a "
            "type in train | the label as a feature of its type"
        ),
    ),
    (
        "a split by a time that is not there | edges too few to hold out",
        (
            "a class below zero | a number of classes for numbers | another word for a split | classes numbered with "
            "gaps | classes of other names | labels of another name | labels that are all null | numbers as labels of "
            "classes | numbers of splits | one class | one class in train | the label as a feature"
        ),
    ),
    (
        "a relation as the target of nodes",
        (
            "a filter that no target passes | a split of another name | a target without a table | labels of a type "
            "that are all null | labels of edges without a column | links by the metric of nodes | links of a "
            "relation without edges | links of no relation | no edges to the target | no row in valid | numbers of a "
            "type as classes | one class of a type in train | one time for all | splits of edges without a column | "
            "the label as a feature of its type | times that are no dates"
        ),
    ),
    (
        "more bad rows than are set aside",
        (
            "a class below zero | a negative weight | a number of classes for numbers | an id twice | another word "
            "for a split | classes of other names | dates of another country | edges too few to hold out | lists of "
            "two lengths | names as numbers"
        ),
    ),
    (
        "no target",
        (
            "a split of another name | links of no relation | no edges to the target | no row in valid | numbers of a "
            "type as classes | one class of a type in train | the label as a feature of its type"
        ),
    ),
    (
        "shares in percent",
        "another word for a split | edges too few to hold out | numbers of splits | one class in train",
    ),
    (
        "a metric of other labels",
        "labels of another name | numbers as labels of classes | numbers of splits",
    ),
    (
        "links of no relation",
        "a filter that no target passes | a target without labels | links of a relation without edges",
    ),
    (
        "edge attention without attributes",
        "a path against the edges | an attribute that its relation has not | an attribute that no relation has",
    ),
    (
        "a split by a time that is not there",
        "a key of another strategy | edges too few to hold out",
    ),
    (
        "ids as floats",
        "edges too few to hold out | ids of two types",
    ),
    (
        "no edges to the target",
        "ends of one relation of another name | fan-outs for some relations",
    ),
    (
        "a filter that no target passes",
        "a weight that is no number | an end that is no node of its type",
    ),
    (
        "a kind as its authors write it | a misspelt kind",
        "a key of another kind",
    ),
    (
        "features of a type without a table",
        "no table has a shared feature",
    ),
    (
        "features as one text",
        "a kind of a column that is no feature",
    ),
    (
        "a kind for a column of no type",
        "shares of text",
    ),
    (
        "links by the metric of nodes",
        "links of a relation without edges",
    ),
)
_HIDDEN = [tuple({*part.split(" | ")} for part in group) for group in (*UNKNOWN, *FOLLOWS)]


def are_hidden(one: str, other: str) -> bool:
    """Return whether two mistakes are a pair that is not told together."""
    return any((one in first and other in second) or (other in first and one in second) for first, second in _HIDDEN)


def names() -> set[str]:
    """Return the names of all mistakes in these pairs."""
    return set().union(*(part for group in _HIDDEN for part in group))
