"""The package's files import one another in one direction, inside functions too."""

import ast
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]


def files():
    """Files of the package by module name."""
    found = {}
    for path in sorted((ROOT / "strata").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(tree):
    """All but those that only type checkers follow."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        yield from imports(node)


def imported(module, path, modules):
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in imports(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in modules}
            continue
        base = node.module or ""
        if node.level:
            above = package.split(".")[: package.count(".") + 2 - node.level]
            base = ".".join([*above, *([node.module] if node.module else [])])
        for alias in node.names:
            full = f"{base}.{alias.name}"
            if full in modules:
                found.add(full)
            elif base in modules and full != "strata._core":  # the module in C++
                found.add(base)
    # Asking for the package that a file belongs to, which has been imported, is no step back.
    return {name for name in found if name != module and not package.startswith(name)}


def circle(edges):
    """Modules along a circle, or nothing."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return path[path.index(name):] + [name]
        if name in done:
            return None
        path.append(name)
        for other in sorted(edges[name]):
            found = visit(other)
            if found:
                return found
        path.pop()
        done.add(name)
        return None

    for name in sorted(edges):
        found = visit(name)
        if found:
            return found
    return None


def test_no_import_comes_back():
    modules = files()
    edges = {name: imported(name, path, modules) for name, path in modules.items()}
    assert len(edges) > 100 and "strata._ops" in edges["strata._functions"]
    assert circle(edges) is None


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c", "a"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None
