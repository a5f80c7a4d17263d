"""Find where a call comes from: the path of the innermost module, and whether it is part of forward, backward or an optimizer."""

from __future__ import annotations

import os
import threading
import weakref
from types import CodeType, FrameType

import torch
from torch.nn import Module

from eagerdecomp._torch.autograd import BACKWARD_CODE, autograd_node, node_number
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.host.source_lines import ForwardLines, noted_for

__all__ = ["BACKWARD", "FORWARD", "OPTIMIZER", "ModulePaths"]

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"

_CALL = Module._wrapped_call_impl.__code__
_OPTIMIZERS = os.path.join(os.path.dirname(os.path.abspath(torch.__file__ or "")), "optim") + os.sep


class ModulePaths:
    """The paths of modules, such as ``model.layers.3.attn``.

    Modules are found by the frames of their calls, so no hook is registered. The first word of a path is the variable that holds
    the outermost module where it is called, or else its class.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}
        self._numbered = [""]
        self._lock = free_in_child(threading.Lock())
        self._names: dict[int, _Names] = {}
        self._paths: dict[int, tuple[weakref.ref[Module], str]] = {}
        self._optimizer_code: dict[CodeType, bool] = {}
        self._forward: dict[int, ForwardLines] = {}

    def place_of(self, frame: FrameType | None, thread: int) -> tuple[str, str]:
        """Return the path of the module that made a call, "" if none did, and the phase. `frame` made the call in this thread.

        In a backward pass, the module is that of the forward call.
        """
        forward = self._forward.get(thread)
        if forward is None:
            forward = self._forward[thread] = ForwardLines()
        node = autograd_node()
        phase = FORWARD if node is None else BACKWARD
        optimizer_code = self._optimizer_code
        while frame is not None:
            code = frame.f_code
            if code is _CALL:
                path = self._path(frame)
                forward.note(self._number(path))
                return path, phase
            if code is BACKWARD_CODE:
                break
            known = optimizer_code.get(code)
            if known is None:
                known = optimizer_code[code] = code.co_filename.startswith(_OPTIMIZERS)
            if known:
                phase = OPTIMIZER
                break
            frame = frame.f_back
        # Number 0 is that of no module.
        number = 0 if node is None else noted_for(node_number(node), forward, list(self._forward.values())) or 0
        forward.note(number)
        return self._numbered[number], phase

    def _number(self, path: str) -> int:
        found = self._numbers.get(path)
        if found is None:
            with self._lock:
                found = self._numbers.setdefault(path, len(self._numbered))
                if found == len(self._numbered):
                    self._numbered.append(path)
        return found

    def _path(self, frame: FrameType) -> str:
        """Return the path of the module that is called in a frame. It is found at its first call."""
        module = outermost = frame.f_locals["self"]
        known = self._paths.get(id(module))
        if known is not None and known[0]() is module:
            return known[1]
        caller = above = frame.f_back
        while above is not None:
            if above.f_code is _CALL:
                outermost, caller = above.f_locals["self"], above.f_back
            above = above.f_back
        names = self._names.get(id(outermost))
        if names is None or names.root() is not outermost:
            names = self._names[id(outermost)] = _Names(outermost, caller)
        path = names.path(module)
        self._paths[id(module)] = weakref.ref(module), path
        return path


class _Names:
    """The names of the modules in one outermost module."""

    def __init__(self, root: Module, caller: FrameType | None) -> None:
        self.root = weakref.ref(root)
        self._first = _variable(root, caller) or type(root).__name__
        self._paths = self._found(root)

    def path(self, module: Module) -> str:
        """Return the path of a module. One that was added since, or that is no submodule, is named by its class."""
        found = self._paths.get(id(module))
        root = self.root()
        if found is None and root is not None:
            self._paths |= self._found(root)
            found = self._paths.setdefault(id(module), f"{self._first}.({type(module).__name__})")
        return found or self._first

    def _found(self, root: Module) -> dict[int, str]:
        return {id(one): f"{self._first}.{name}" if name else self._first for name, one in root.named_modules()}


def _variable(module: Module, frame: FrameType | None) -> str:
    """Return the name of the variable of a frame, or of the attribute of its ``self``, that holds a module."""
    if frame is None:
        return ""
    scopes = [frame.f_locals, frame.f_globals]
    owner = frame.f_locals.get("self")
    if owner is not None and not isinstance(owner, Module):
        scopes.append(getattr(owner, "__dict__", {}))
    for scope in scopes:
        for name, value in list(scope.items()):
            if value is module and name.isidentifier() and name != "self":
                return name
    return ""
