"""Owners of C objects, which are freed once, used by one thread at a time, and never used after
being freed."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Callable, Dict, NoReturn, TypeVar

from ._library import BusyError, InvalidError

_Self = TypeVar("_Self", bound="Held")


def require(value: Any, kind: type, what: str) -> None:
    """Raises InvalidError unless the value is an instance of `kind`, since C cannot tell one handle
    from another."""
    if not isinstance(value, kind):
        raise InvalidError(f"{what} is of type {type(value).__name__}, not a {kind.__name__}")


class Held:
    """The owner of a C object, which is freed with the owner. Copying clones the object; pickling
    is an error."""

    _kind = "object"
    """Its name in messages."""
    _instead = "make it anew"
    """The advice in the error message for pickling."""

    _address: int
    _lock: threading.Lock
    _free: weakref.finalize[Any, Any]

    def _hold(self, address: int, free: Callable[[int], Any]) -> None:
        """Takes ownership of the object at the address; `free` is called with it, once."""
        self._address = address
        self._lock = threading.Lock()
        self._free = weakref.finalize(self, free, address)
        # Not freed when the interpreter exits: a thread may still be using it, and the memory ends
        # with the process.
        self._free.atexit = False

    def _take(self) -> int:
        """Locks the object for this thread, and returns its address. The caller releases the lock.
        BusyError if it is taken, InvalidError if the object is closed."""
        if not self._lock.acquire(blocking=False):
            raise BusyError(
                f"the {self._kind} is in use by another thread, or twice in one call", -10
            )
        if not self._free.alive:
            self._lock.release()
            raise InvalidError(f"the {self._kind} is closed")
        return self._address

    def _call(self, function: Any, *arguments: Any) -> Any:
        """Calls a C function with the address as its first argument."""
        address = self._take()
        try:
            return function(address, *arguments)
        finally:
            self._lock.release()

    def _twin(self: _Self, address: int, free: Callable[[int], Any]) -> _Self:
        """Returns the owner of the clone at another address."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._hold(address, free)
        return other

    def clone(self: _Self) -> _Self:
        """Returns an independent copy in the same state."""
        raise NotImplementedError

    def __copy__(self: _Self) -> _Self:
        return self.clone()

    def __deepcopy__(self: _Self, _memo: Dict[int, Any]) -> _Self:
        return self.clone()

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled: {self._instead}")

    def close(self) -> None:
        """Frees the object now, instead of when nothing refers to it any more."""
        if self._free.alive:
            self._take()
            try:
                self._free()
            finally:
                self._lock.release()
