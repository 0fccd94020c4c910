"""Patches llama-cpp-python as soon as a program imports it, for `python -m llama_sieve run`.

Python imports a module named sitecustomize when it starts. This one installs a finder that waits
for llama_cpp. It then imports the sitecustomize of the program's own Python.
"""

import importlib
import importlib.abc
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _package():
    """Returns the module llama_sieve, which may be installed for another Python."""
    try:
        import llama_sieve
    except ModuleNotFoundError as error:
        if error.name != "llama_sieve":
            raise
        folder = os.path.dirname(_HERE)
        spec = importlib.util.spec_from_file_location(
            "llama_sieve", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        llama_sieve = importlib.util.module_from_spec(spec)
        sys.modules["llama_sieve"] = llama_sieve
        spec.loader.exec_module(llama_sieve)
    return llama_sieve


class _Finder(importlib.abc.MetaPathFinder):
    """Finds llama_cpp by the finders after this one, and patches it after it was executed.

    It stays installed, since a module may be searched for without being imported, and a failed
    import may be repeated.
    """

    def __init__(self):
        self._made = None

    def find_spec(self, name, path=None, target=None):
        if name != "llama_cpp":
            return None
        at = sys.meta_path.index(self) if self in sys.meta_path else -1
        for finder in sys.meta_path[at + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self.patch)
                return spec
        return None

    def patch(self, module):
        try:
            if self._made is not None and self._made.module is not module:
                # The module was removed from sys.modules and imported again.
                self._made.undo()
                self._made = None
            if self._made is None:
                self._made = _package().patch(module)
        except Exception as error:  # The program continues as without this package.
            print(f"llama-sieve: llama-cpp-python is not patched: {error}", file=sys.stderr)


class _Loader(importlib.abc.Loader):
    """Loads a module with another loader, which it restores as the module's loader, and then calls
    `then`."""

    def __init__(self, loader, then):
        self._loader = loader
        self._then = then

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        create = getattr(self._loader, "create_module", None)
        return None if create is None else create(spec)

    def exec_module(self, module):
        spec = getattr(module, "__spec__", None)
        for place, name in ((module, "__loader__"), (spec, "loader")):
            if getattr(place, name, None) is self:
                setattr(place, name, self._loader)
        try:
            self._loader.exec_module(module)
        except BaseException:
            # For a caller that repeats the import.
            if getattr(spec, "loader", None) is self._loader:
                spec.loader = self
            raise
        self._then(module)


def _make_way():
    """Imports the module that this file hides. Python reports its errors."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _HERE]
    ours = sys.modules.pop(__name__, None)
    try:
        importlib.import_module(__name__)
    except ModuleNotFoundError as error:
        if error.name != __name__:
            raise
        if ours is not None:
            sys.modules[__name__] = ours


sys.meta_path.insert(0, _Finder())
if __name__ == "sitecustomize":
    _make_way()
