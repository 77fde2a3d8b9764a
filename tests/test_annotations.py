"""Every annotation of the package means something when a program runs, so that any checker of types can read it."""

import importlib
import inspect
import pkgutil
import typing
from collections.abc import Iterator
from types import FunctionType, ModuleType

import attention_lab


def modules() -> Iterator[ModuleType]:
    for each in pkgutil.walk_packages(attention_lab.__path__, "attention_lab."):
        if not each.name.endswith("__main__"):
            yield importlib.import_module(each.name)


def functions(module: ModuleType) -> Iterator[FunctionType]:
    """Returns the functions and methods that are written in a module."""
    for thing in vars(module).values():
        if getattr(thing, "__module__", None) == module.__name__:
            inside = vars(thing).values() if inspect.isclass(thing) else [thing]
            yield from (inspect.unwrap(each) for each in inside if inspect.isfunction(each))


def test_annotations_can_be_resolved():
    found = [function for module in modules() for function in functions(module)]
    assert len(found) > 500
    for function in found:
        typing.get_type_hints(function)
