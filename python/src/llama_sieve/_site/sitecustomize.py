"""Patches llama-cpp-python as soon as a program imports it: for `python -m llama_sieve run`.

Python imports a module of this name at its start. This one waits for llama_cpp, and then makes way
for the one that the program's own Python has.
"""

import importlib.abc
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _package():
    """llama_sieve, which may be installed for another Python than this."""
    try:
        import llama_sieve
    except ImportError:
        folder = os.path.dirname(_HERE)
        spec = importlib.util.spec_from_file_location(
            "llama_sieve", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        llama_sieve = importlib.util.module_from_spec(spec)
        sys.modules["llama_sieve"] = llama_sieve
        spec.loader.exec_module(llama_sieve)
    return llama_sieve


def _patch(module):
    try:
        _package().patch(module)
    except Exception as error:  # The program goes on as it would have without us.
        print(f"llama-sieve: llama-cpp-python is not patched: {error}", file=sys.stderr)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself, but is told when llama_cpp is looked for."""

    def find_spec(self, name, path=None, target=None):
        if name != "llama_cpp":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_patch(module):
            execute(module)
            _patch(module)

        spec.loader.exec_module = execute_and_patch
        return spec


def _make_way():
    """Imports what this file stands before."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _HERE]
    ours = sys.modules.pop(__name__, None)
    try:
        importlib.import_module(__name__)
    except ImportError:
        if ours is not None:
            sys.modules[__name__] = ours


sys.meta_path.insert(0, _Finder())
if __name__ == "sitecustomize":
    _make_way()
