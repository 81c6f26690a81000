"""Imports follow the layers of the package and have no cycles."""

import ast
import graphlib
import pathlib

PACKAGE = pathlib.Path(__file__).parent.parent / "keras_spanbert"
# From the lowest to the highest. Each module belongs to the layer of its file or folder.
FLOORS = [
    (
        "cache", "checks", "console", "files", "stores", "keras_losses", "keras_private",
        "optional", "tensorflow_log", "distribution", "layers", "metrics", "wording",
    ),
    ("training", "formats", "text", "data.batches"),
    ("models",),
    ("data", "serving"),
    ("tasks", "runs"),
    ("checkpoints",),
    ("api", "__init__"),
    ("recipes",),
]  # fmt: skip
FLOOR_OF = {name: floor for floor, names in enumerate(FLOORS) for name in names}


def module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports(module):
    """Returns the modules of the package that a module imports, also inside functions."""
    is_package = MODULES[module].name == "__init__.py"
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: relative imports are not allowed"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found = name if name in MODULES else node.module
                # Names of submodules count as modules.
                if found in MODULES and not (is_package and found == module):
                    yield found


def floor(module):
    name = module.partition(".")[2]
    folder = name.partition(".")[0] or "__init__"
    return FLOOR_OF.get(name, FLOOR_OF[folder])


def test_every_module_has_a_layer():
    missing = [module for module in MODULES if module.split(".")[1:2] and not floor(module) >= 0]
    assert not missing and len(MODULES) > 40


def test_no_import_from_a_higher_layer():
    up = [
        f"{module} imports {other}"
        for module in MODULES
        for other in imports(module)
        # Modules of higher layers can import public names from the package.
        if floor(other) > floor(module)
    ]
    assert not up, "\n".join(up)


def test_no_circular_imports():
    graph = {module: {*imports(module)} - {module} for module in MODULES}
    graphlib.TopologicalSorter(graph).prepare()  # Raises an error that names a cycle.


def test_only_recipes_read_flags():
    readers = [
        module
        for module, path in MODULES.items()
        if "absl" in path.read_text() and ".recipes" not in module
    ]
    assert not readers


def test_files_are_short():
    long = {}
    for module, path in {**MODULES, "train": PACKAGE.parent / "train.py"}.items():
        most = {"train": 80}.get(module, 600)
        lines = len(path.read_text().splitlines())
        if lines >= most:
            long[module] = lines
    assert not long


# Public names with an underscore: those of named tuples and `os`.
PUBLIC = {"_asdict", "_exit", "_replace"}


def test_private_names_of_keras_are_used_in_two_modules():
    trees = {module: ast.parse(path.read_text()) for module, path in MODULES.items()}
    nodes = {module: list(ast.walk(tree)) for module, tree in trees.items()}
    own = set(PUBLIC)
    for node in (node for of_module in nodes.values() for node in of_module):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            own.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                own.add(node.attr)
    found = {
        f"{module}: {node.attr}"
        for module, of_module in nodes.items()
        for node in of_module
        if isinstance(node, ast.Attribute) and node.attr.startswith("_")
        if not node.attr.startswith("__") and node.attr not in own
    }
    modules = {name.partition(": ")[0].removeprefix("keras_spanbert.") for name in found}
    assert modules == {"keras_losses", "keras_private"}
