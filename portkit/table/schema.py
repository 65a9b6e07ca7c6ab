"""What a mapping table says, as frozen values. `load.py` makes them from TOML, `slots.py` expands them for a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.axes import Signature

KINDS: dict[str, tuple[str, ...]] = {
    "linear": ("kernel", "bias"),
    "norm": ("scale", "bias"),
    "embedding": ("table",),
}
POOLER_USES = ("optional", "read", "unread", "head")
CONFIG_USES = ("size", "function", "training")


@dataclass(frozen=True)
class Grow:
    """Rows that a layout adds to a table when its row count is below, equal to or above a number.

    `to`: zero rows are appended up to this count. `front`: an expression for how many are put in front.
    """

    below: int | None = None
    equals: int | None = None
    above: int | None = None
    to: int | None = None
    front: str | None = None

    def applies(self, rows: int) -> bool:
        """Whether this rule is the one for a table of `rows` rows."""
        return (
            (self.below is not None and rows < self.below)
            or (self.equals is not None and rows == self.equals)
            or (self.above is not None and rows > self.above)
        )


@dataclass(frozen=True)
class Place:
    """Where one part of a module (its kernel, its bias, …) lives in one layout.

    `name` is the whole stored name, with holes. `also` are old spellings, read but never written. `tied` names the
    logical tensor whose numbers it shares when it is not stored. `overruled_by` is a second stored name that wins.
    `absent` is the reason why the layout has no place for it, `absorbed_by` the logical table to whose rows this one's
    first row is added. `from_row` is an expression for the first logical row of a table that is stored at all.
    """

    name: str = ""
    also: tuple[str, ...] = ()
    tied: str = ""
    overruled_by: str = ""
    absent: str = ""
    absorbed_by: str = ""
    from_row: str = ""
    grow: tuple[Grow, ...] = ()


@dataclass(frozen=True)
class Row:
    """One logical module: its name with holes, kind, signature, and the places of its parts in each layout."""

    group: str
    name: str
    kind: str
    signature: Signature
    places: Mapping[str, Mapping[str, Place]]  # layout -> part -> place

    @property
    def address(self) -> str:
        """The TOML header of the row: a stable place to point at."""
        return f'[rows.{self.group}."{self.name}"]'


@dataclass(frozen=True)
class ConfigField:
    """A logical config field and its name in each layout; an empty name means that the layout has no such field.

    `default` in braces is another field's value. `less` is an expression for how much smaller a layout's number is than
    the logical one. `head` names the row group that a model must have for the field to matter.
    """

    name: str
    use: str
    names: Mapping[str, str]
    default: object = None
    less: Mapping[str, str] = field(default_factory=dict)
    head: str = ""

    def name_in(self, layout: str) -> str:
        """The field's name in one layout's config.json."""
        return self.names.get(layout, self.name)


@dataclass(frozen=True)
class Task:
    """A model: which row groups make it, what its head does with the pooler, and its class in each layout."""

    name: str
    groups: tuple[str, ...]
    pooler: str
    head_style: str | None
    classes: Mapping[str, str]
    bare: bool = False  # the base model: its names carry no prefix


@dataclass(frozen=True)
class LayoutFacts:
    """What holds for a whole family in one layout.

    `spare_pooler` is True where a head that never reads a pooler may still have one, else the reason why not;
    `needs_pooler` says that every model has one. `fixed` is what the framework's code says and no config can change.
    """

    model_type: str = ""
    prefix: str = ""
    spare_pooler: bool | str = True
    needs_pooler: bool = False
    fixed: Mapping[str, object] = field(default_factory=dict)
    require: Mapping[str, object] = field(default_factory=dict)
    ignore: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Dialect:
    """Another convention inside one layout: some rows stored differently, some facts fixed, some tasks only."""

    name: str
    layout: str
    about: str
    columns: Mapping[str, Mapping[str, Mapping[str, Place]]]  # row name -> layout -> part -> place
    tasks: tuple[str, ...] = ()
    fixed: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A family: everything that its TOML file says."""

    family: str
    about: str
    source: str
    prefixed: tuple[str, ...]
    layouts: Mapping[str, LayoutFacts]
    axes: Mapping[str, str]
    repeat: Mapping[str, str | tuple[str, ...]]
    config: Mapping[str, ConfigField]
    values: Mapping[str, Mapping[str, Mapping[str, tuple[str, ...]]]]  # field -> logical value -> layout -> spellings
    facts: Mapping[str, object]
    looks_like: Mapping[str, object]
    restyle: Mapping[str, str]
    rows: tuple[Row, ...]
    tasks: Mapping[str, Task]
    dialects: Mapping[str, Dialect]

    def rows_of(self, groups: tuple[str, ...]) -> tuple[Row, ...]:
        """The rows of some groups, in the table's order."""
        return tuple(r for r in self.rows if r.group in groups)


@dataclass(frozen=True)
class Wrappers:
    """What training loops leave around the names of a model.

    `undo` maps a word in the names of weights that a tool has split or packed to what to do about it.
    """

    infixes: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    undo: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Storage:
    """How one layout stores each part of each kind of module: `(leaf name, pattern of dimensions)`.

    `separator` stands between the words of a name. `numbering` is how a name goes on when it comes again, where the
    first has no number; without it, `{i}` is the number itself.
    """

    name: str
    about: str
    parts: Mapping[str, Mapping[str, tuple[str, str]]]  # kind -> part -> (leaf, pattern)
    also: Mapping[str, Mapping[str, str]]  # kind -> part -> old leaf name
    formats: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()  # file names under which a folder keeps its weights
    wrappers: Wrappers = field(default_factory=Wrappers)
    dtype: str | None = None  # what weights are written in unless asked otherwise; None: in their own
    separator: str = "."
    numbering: str = ""
    always_prefixed: bool = False  # a model with a head never goes without its family's prefix
    infers: bool = False  # files may come without a config: shapes say the sizes
    older: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # words of older files -> today's

    def number(self, i: int) -> str:
        """What stands for `{i}` in this layout's names."""
        if not self.numbering:
            return str(i)
        return self.numbering.format(i=i) if i else ""


@dataclass(frozen=True)
class Tables:
    """All families and layouts that are known."""

    families: Mapping[str, Table]
    storages: Mapping[str, Storage]

    @property
    def layouts(self) -> tuple[str, ...]:
        """Names of the layouts that folders come in; the hub is not one of them."""
        return tuple(n for n in self.storages if n != "logical")
