"""Nested containers as lists of leaves and back, as torch.utils._pytree."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

__all__ = ["LeafSpec", "TreeSpec", "register_pytree_node", "tree_all", "tree_any", "tree_flatten", "tree_iter", "tree_leaves", "tree_map",
           "tree_map_", "tree_map_only", "tree_structure", "tree_unflatten"]

PyTree = Any
Flatten = Callable[[Any], Tuple[List[Any], Any]]
Unflatten = Callable[[Iterable[Any], Any], Any]


class _Kind(NamedTuple):
    flatten: Flatten
    unflatten: Unflatten


def _of_dict(d: Any) -> Tuple[List[Any], Any]:
    return list(d.values()), list(d)


_KINDS: Dict[type, _Kind] = {
    list: _Kind(lambda v: (list(v), None), lambda leaves, _: list(leaves)),
    tuple: _Kind(lambda v: (list(v), None), lambda leaves, _: tuple(leaves)),
    dict: _Kind(_of_dict, lambda leaves, keys: dict(zip(keys, leaves))),
    OrderedDict: _Kind(_of_dict, lambda leaves, keys: OrderedDict(zip(keys, leaves))),
    defaultdict: _Kind(lambda v: (list(v.values()), (v.default_factory, list(v))),
                       lambda leaves, c: defaultdict(c[0], zip(c[1], leaves))),
    deque: _Kind(lambda v: (list(v), v.maxlen), lambda leaves, most: deque(leaves, maxlen=most)),
}
_NAMED = _Kind(lambda v: (list(v), type(v)), lambda leaves, kind: kind(*leaves))


def register_pytree_node(cls: type, flatten_fn: Flatten, unflatten_fn: Unflatten, **more: Any) -> None:
    """Containers of a class of one's own: how to take one apart into (leaves, context), and how to make one of these."""
    if cls in _KINDS:
        raise ValueError(f"{cls} is already registered as pytree node.")
    _KINDS[cls] = _Kind(flatten_fn, unflatten_fn)


_register_pytree_node = register_pytree_node


def _kind_of(value: Any) -> Optional[_Kind]:
    kind = _KINDS.get(type(value))
    if kind is None and isinstance(value, tuple) and hasattr(value, "_fields"):
        return _NAMED
    return kind


class TreeSpec:
    """The containers without their leaves."""

    def __init__(self, type: Any, context: Any, children_specs: List["TreeSpec"]) -> None:
        self.type, self.context, self.children_specs = type, context, children_specs
        self.num_leaves: int = sum(c.num_leaves for c in children_specs)

    @property
    def num_children(self) -> int:
        return len(self.children_specs)

    def is_leaf(self) -> bool:
        """Whether it stands for a leaf."""
        return False

    def unflatten(self, leaves: Iterable[Any]) -> PyTree:
        """tree_unflatten()."""
        return tree_unflatten(leaves, self)

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, TreeSpec) and (self.type, self.context) == (other.type, other.context)
                and self.children_specs == other.children_specs)

    def __hash__(self) -> int:
        return hash((self.type, self.num_leaves))

    def __repr__(self) -> str:
        name = getattr(self.type, "__name__", "None")
        return f"TreeSpec({name}, {self.context}, {self.children_specs})"


class LeafSpec(TreeSpec):
    """A leaf's place."""

    def __init__(self) -> None:
        super().__init__(None, None, [])
        self.num_leaves = 1

    def is_leaf(self) -> bool:
        return True

    def __repr__(self) -> str:
        return "*"


def tree_flatten(tree: PyTree, is_leaf: Optional[Callable[[Any], bool]] = None) -> Tuple[List[Any], TreeSpec]:
    """The leaves in order, and what holds them."""
    leaves: List[Any] = []

    def walk(value: Any) -> TreeSpec:
        kind = None if is_leaf is not None and is_leaf(value) else _kind_of(value)
        if kind is None:
            leaves.append(value)
            return LeafSpec()
        children, context = kind.flatten(value)
        return TreeSpec(type(value), context, [walk(c) for c in children])

    return leaves, walk(tree)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """The containers with these leaves. ValueError for another number of them."""
    given = list(leaves)
    if len(given) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten: {len(given)} leaves were given, the tree has {treespec.num_leaves}")
    rest = iter(given)

    def make(spec: TreeSpec) -> Any:
        if spec.is_leaf():
            return next(rest)
        kind = _KINDS.get(spec.type, _NAMED)
        return kind.unflatten([make(c) for c in spec.children_specs], spec.context)

    return make(treespec)


def tree_leaves(tree: PyTree, is_leaf: Optional[Callable[[Any], bool]] = None) -> List[Any]:
    """The leaves in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: PyTree, is_leaf: Optional[Callable[[Any], bool]] = None) -> Iterable[Any]:
    """The leaves, one after the other."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: PyTree, is_leaf: Optional[Callable[[Any], bool]] = None) -> TreeSpec:
    """The containers without their leaves."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Optional[Callable[[Any], bool]] = None) -> PyTree:
    """The containers with ``func`` of each leaf, and of those at its place in further trees of the same form."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = []
    for rest in rests:
        found, other = tree_flatten(rest, is_leaf)
        if len(found) != len(leaves):
            raise ValueError(f"tree_map: trees of {len(leaves)} and {len(found)} leaves")
        others.append(found)
    return tree_unflatten([func(*items) for items in zip(leaves, *others)], spec)


def tree_map_(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Optional[Callable[[Any], bool]] = None) -> PyTree:
    """Calls ``func`` for each leaf; the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(type_or_pred: Any, func: Callable[[Any], Any], tree: PyTree,
                  is_leaf: Optional[Callable[[Any], bool]] = None) -> PyTree:
    """tree_map() for leaves of a type (or types, or that a function accepts); the others stay."""
    chosen = type_or_pred if callable(type_or_pred) and not isinstance(type_or_pred, type) else (
        lambda v: isinstance(v, type_or_pred))
    return tree_map(lambda v: func(v) if chosen(v) else v, tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: Optional[Callable[[Any], bool]] = None) -> bool:
    """Whether it holds for every leaf."""
    return all(pred(v) for v in tree_leaves(tree, is_leaf))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: Optional[Callable[[Any], bool]] = None) -> bool:
    """Whether it holds for a leaf."""
    return any(pred(v) for v in tree_leaves(tree, is_leaf))


def _broadcast_to(prefix: PyTree, spec: TreeSpec) -> Optional[List[Any]]:
    """A tree whose leaves may stand for whole branches of another: one value for each leaf of that; None where the forms
    differ."""
    if spec.is_leaf():
        return [prefix]
    kind = _KINDS.get(spec.type, _NAMED)
    if type(prefix) is not spec.type:
        return None if _kind_of(prefix) is not None else [prefix] * spec.num_leaves
    children, context = kind.flatten(prefix)
    if len(children) != spec.num_children or context != spec.context:
        return None
    found: List[Any] = []
    for child, below in zip(children, spec.children_specs):
        part = _broadcast_to(child, below)
        if part is None:
            return None
        found += part
    return found


_broadcast_to_and_flatten = _broadcast_to
