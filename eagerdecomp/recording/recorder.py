"""The mode that records the values of a program's calls."""

from __future__ import annotations

import itertools
import os
import platform
import sys
import threading
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from eagerdecomp._torch.higher_order import AmbientMode, run_higher_order
from eagerdecomp._torch.modes import active_fake_mode, no_current_modes, without_torch_dispatch, without_torch_function
from eagerdecomp._torch.ops import HigherOrderOperator, OpOverload
from eagerdecomp._torch.tensors import any_fake, desugars_first, dispatch_keys, has_values, is_zero_tensor
from eagerdecomp._version import __version__
from eagerdecomp.eager.compare import is_arbitrary
from eagerdecomp.eager.observe import copied, leaves_of, mapped_call
from eagerdecomp.eager.random_numbers import draws_numbers
from eagerdecomp.errors import ArgumentError, ArgumentTypeError
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.host.source_lines import ForwardLines, UserLines, place_in_words
from eagerdecomp.ops.call_text import tensor_text, value_text
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.ops.schema import facts_of, tensors_in
from eagerdecomp.recording.batches import Batches
from eagerdecomp.recording.places import ModulePaths
from eagerdecomp.recording.run_folder import RunWriter

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ValueRecorder"]

# Maximum number of tensors of a list that are written as text.
_ITEMS = 4

# Types of arguments that are written as JSON.
_PLAIN = frozenset({bool, int, float, str, type(None)})

# Maximum number of sites that are remembered, so that they are written once.
_SITES = 1 << 12


class _Op:
    """The facts about an op that the recorder needs.

    Attributes:
        overload: the op.
        name: its name.
        passthrough: whether its calls are not recorded.
        random: whether it draws random numbers.
        names: the names of its arguments.
        unread: the names of arguments whose values it does not read, or that only it understands.
        reads: whether it reads the values of each argument.
        written: the positions of the arguments that it writes.
        writes_lists: whether it writes a list of tensors.
        undefined: the positions of results whose values are not defined.
    """

    def __init__(self, op: OpOverload) -> None:
        facts = facts_of(op)
        self.overload, self.name = op, str(op)
        self.passthrough = is_passthrough_name(self.name)
        self.random = facts.is_random
        self.names = names = tuple([one.name for one in facts.arguments])
        unread = {names[position] for position in facts.overwrites}
        if facts.is_out:
            unread |= {names[position] for position in facts.mutated}
        if facts.reads_workspace_of:
            unread.add("workspace")
        if facts.reads_metadata:
            unread |= {one.name for one in facts.arguments if one.holds_tensors}
        self.unread = frozenset(unread)
        self.reads = tuple([name not in unread for name in names])
        statistics = ("running_mean", "running_var") if facts.writes_statistics_if else ()
        self.written = (*facts.mutated, *(names.index(one) for one in statistics if one in names))
        self.writes_lists = any(facts.arguments[position].is_list for position in facts.mutated)
        results = range(len(op._schema.returns))
        self.undefined = frozenset(place for place in results if place in facts.opaque_results or is_arbitrary(op, place))


class ValueRecorder(AmbientMode):
    """Records the calls of a program in a folder, with digests of inputs and outputs: ``with ed.ValueRecorder("run_a"): train()``.

    ``eagerdecomp diff RUN_A RUN_B`` compares two such runs, and names the first call that differs.

    The recorder gets the calls as the program makes them, before they are decomposed: in plain eager, in an `EagerDecompMode`
    (whichever of the two is entered first), and on an installed device. Calls are appended to ``calls.jsonl`` in the folder of the
    rank, and digests at least once a second to ``digests.bin``, so the run can be read after a crash. A digest holds a hash, the
    norm, minimum, maximum, mean, the numbers of NaN and infinities, and a fixed projection. Calls on fake tensors, in compiled
    graphs and in forked processes are not recorded.

    Args:
        path: the folder of the run. Each rank writes a folder in it: ``rank0``. The rank is that of `torch.distributed`, if it is
            initialized when the recorder is entered, or else the variable RANK.
        save: patterns of op names, such as ``"aten.softmax*"``. Whole tensors of these calls are saved too.
        save_modules: paths of modules, such as ``"model.layers.3"``. Whole tensors of calls in these modules are saved too.
        save_calls: numbers of calls whose whole tensors are saved.
        save_limit: the maximum number of bytes of saved tensors.
        native_random: whether random calls on the CPU run torch's own kernels, also in an `EagerDecompMode`, so that they draw the
            same numbers as in plain eager.
        command: the command line that is run, for the text of a comparison.
        options: the options of ``eagerdecomp record`` with which it is run.

    Raises:
        ArgumentTypeError: if `path` is no path.
        ArgumentError: for an invalid `save_limit`, or a string where a list is expected.
        FileError: when the recorder is entered, if the folder already holds a run of this rank.

    Examples:
        >>> import tempfile
        >>> import torch
        >>> import eagerdecomp as ed
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with ed.ValueRecorder(folder) as recorder:
        ...         y = torch.nn.functional.silu(torch.ones(2))
        ...     recorder.calls
        2
    """

    stays_innermost = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        save: Iterable[str] = (),
        save_modules: Iterable[str] = (),
        save_calls: Iterable[int] = (),
        save_limit: int = 1 << 30,
        native_random: bool = False,
        command: Sequence[str] = (),
        options: Sequence[str] = (),
    ) -> None:
        super().__init__()
        if not isinstance(path, (str, os.PathLike)):
            raise ArgumentTypeError(f"path must be the path of a folder, not {path!r}")
        for name, given in (("save", save), ("save_modules", save_modules)):
            if isinstance(given, str):
                raise ArgumentError(f"{name} must be a list of strings, not the string {given!r}. Pass [{given!r}]")
        if type(save_limit) is not int or save_limit < 0:
            raise ArgumentError(f"save_limit must be an integer from 0 up, not {save_limit!r}")
        self.path = Path(path).absolute()  # the program may change the working directory
        self._save = tuple(save)
        self._save_modules = tuple(save_modules)
        self._save_calls = frozenset(save_calls)
        self._saves_any = bool(self._save or self._save_modules or self._save_calls)
        self._save_left = save_limit
        self._native_random = native_random
        self._command, self._options = tuple(command), tuple(options)
        self._owner = os.getpid()
        self._lock = free_in_child(threading.RLock())
        self._writer: RunWriter | None = None
        self._entered = 0
        self._lines = UserLines()
        self._paths = ModulePaths()
        self._forward: dict[int, ForwardLines] = {}
        self._inputs: dict[tuple[Any, ...], tuple[int, dict[str, Any]]] = {}
        self._sites: dict[tuple[Any, ...], int] = {}
        self._numbers = itertools.count()
        self._kinds: dict[Sequence[type], tuple[bool, bool]] = {}  # of types of tensors: whether they handle ops, or are fake
        self._readable: dict[int, bool] = {}  # of tensors with these dispatch keys
        self._saved_by: dict[tuple[str, str], bool] = {}  # an op and a module -> whether a pattern or a path names them
        self._unmatched = dict.fromkeys((*self._save, *self._save_modules))
        self._ops: dict[OpOverload, _Op] = {}

    @property
    def calls(self) -> int:
        """The number of recorded calls."""
        return 0 if self._writer is None else self._writer.calls

    @property
    def unmatched(self) -> list[str]:
        """Why nothing was saved for some of what was asked for: a line for each pattern, module and number without a call."""
        names = [repr(one) for one in self._unmatched]
        names += [str(number) for number in sorted(self._save_calls) if not 0 <= number < self.calls]
        return [f"nothing was saved for {one}: no call matched" for one in names]

    def __enter__(self) -> Self:
        with self._lock:
            if self._writer is None:
                rank = _rank()
                self._writer = writer = RunWriter(self.path / f"rank{rank}", self._header(rank))
                self._batches = Batches(writer.first_digest, writer.add_digests, writer.add_values)
            self._entered += 1
        return super().__enter__()

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        error = exc[1] if len(exc) > 1 and not isinstance(exc[1], SystemExit) else None
        with self._lock:
            self._entered -= 1
            if error is not None and not self._entered and self._writer is not None and os.getpid() == self._owner:
                self._writer.add_note(f"the program raised {type(error).__name__}: {error}".partition("\n")[0])

    def close(self) -> None:
        """Write the last row. Later calls are not recorded. If it is missing, a comparison says that the run may have crashed."""
        with self._lock:
            if self._writer is not None and os.getpid() == self._owner:
                self._batches.flush()
                for note in self.unmatched:
                    self._writer.add_note(note)
                self._writer.close()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kinds = self._kinds.get(types)
        if kinds is None:
            kinds = self._kinds[types] = (desugars_first(types), any_fake(types))
        if kinds[0]:
            return NotImplemented
        kwargs = kwargs or {}
        op = self._ops.get(func)
        if op is None:
            if isinstance(func, HigherOrderOperator):
                return run_higher_order(self, func, args, kwargs)
            if isinstance(func, OpOverload):
                op = self._ops[func] = _Op(func)
        if op is None or op.passthrough or kinds[1] or active_fake_mode() is not None or os.getpid() != self._owner:
            return func(*args, **kwargs)
        frame = sys._getframe().f_back  # None in a thread of autograd's
        # Not in `threading.local`: a thread of autograd's loses that whenever it leaves Python.
        thread = threading.get_native_id()
        forward = self._forward.get(thread)
        if forward is None:
            forward = self._forward[thread] = self._lines.of_thread()
        line = self._lines.number_of(frame, forward)
        module, phase = self._paths.place_of(frame, thread)
        with self._lock:
            self._batches.start()
            key: list[Any] = [func, line, module, phase, op.random and draws_numbers(func, args, kwargs)]
            for value, read in zip(args, op.reads, strict=False):
                self._see(value, read, key)
            for name, value in kwargs.items():
                key.append(name)
                self._see(value, name not in op.unread, key)
            given = self._inputs.get(whole := tuple(key)) or self._given(whole, op, args, kwargs)
            values = self._batches.taken()
            saved = self._copied(op, module, args, kwargs) if self._saves_any else None
        uncounted = _uncounted(op, args) if op.writes_lists else []
        versions = [one._version for one in uncounted]
        try:
            if self._native_random and op.random and _is_on_cpu(args, kwargs):
                with no_current_modes():
                    result = func(*args, **kwargs)
            else:
                result = func(*args, **kwargs)
        except Exception as error:
            self._write(given, [], values, {"error": f"{type(error).__name__}: {error}".partition("\n")[0]})
            raise
        for one, version in zip(uncounted, versions, strict=True):
            if one._version == version:
                torch.autograd.graph.increment_version(one)
        outputs = _outputs(op, args, kwargs, result)
        if saved is not None:
            with no_current_modes():
                saved["results"] = copied(None, list(leaves_of(result)), {}, home=True)[0]
                saved["written"] = copied(None, (), _written(op, args, kwargs), home=True)[1]
        self._write(given, outputs, values, {} if saved is None else {"saved": saved})
        return result

    # -- values ---------------------------------------------------------------------------------------------------------------

    def _see(self, value: Any, read: bool, key: list[Any]) -> None:
        """Append to `key` what is written about a value, and digest it if it is a tensor or a list of tensors, and `read`."""
        if isinstance(value, Tensor):
            dtype, shape, readable = self._form(value)
            key += dtype, shape, readable
            if readable:
                key.append(value.stride())
                if read:
                    self._batches.add((dtype, shape), value if value.is_cpu else _on_cpu(value))
        elif (kind := type(value)) in _PLAIN:
            key += kind, value
        elif isinstance(value, (list, tuple)) and value and not _PLAIN.issuperset(map(type, value)):
            forms = [self._form(one) if isinstance(one, Tensor) else (kind, None, repr(one)) for one in value]
            key += forms
            tensors = [one for one in value if isinstance(one, Tensor)]
            if tensors and read and None not in [readable for _, _, readable in forms]:
                tensors = [one if one.is_cpu else _on_cpu(one) for one in tensors]
                if len({one.dtype for one in tensors}) > 1:
                    with without_torch_dispatch(), without_torch_function():
                        tensors = [one.to(torch.float64) for one in tensors]
                self._batches.add((tensors[0].dtype, *[one.shape for one in tensors]), *tensors)
        else:
            key.append(repr(value))

    def _form(self, tensor: Tensor) -> tuple[Any, Any, Any]:
        """Return the dtype, the shape and the other facts of a tensor. The last are None if its values cannot be read."""
        keys = dispatch_keys(tensor).raw_repr()
        readable = self._readable.get(keys)
        if readable is None:
            readable = self._readable[keys] = _readable([tensor])
        if not readable:
            return tensor_text(tensor), None, None
        return tensor.dtype, tensor.shape, keys if tensor.is_cpu else (keys, tensor.device)

    def _row(self, name: str, value: Any, read: bool) -> dict[str, Any]:
        """Return what is written about an argument or a result."""
        if isinstance(value, Tensor):
            row: dict[str, Any] = {"name": name, "tensor": tensor_text(value)}
            if value.layout is torch.strided and not value.is_nested:
                row["strides"] = value.stride()
            return {**row, "read": True} if read and _readable([value]) else row
        if type(value) in _PLAIN:
            return {"name": name, "value": value}
        if isinstance(value, (list, tuple)):
            tensors = [one for one in value if isinstance(one, Tensor)]
            if tensors:
                text = ", ".join([tensor_text(one) if isinstance(one, Tensor) else repr(one) for one in value[:_ITEMS]])
                row = {"name": name, "tensor": f"[{text}]" if len(value) <= _ITEMS else f"[{text}, ... {len(value)} in all]"}
                return {**row, "read": True} if read and _readable(tensors) else row
            if all(type(one) in _PLAIN for one in value):
                return {"name": name, "value": list(value)}
        return {"name": name, "text": value_text(value, items=_ITEMS)[:200]}

    def _given(self, key: tuple[Any, ...], op: _Op, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return a number and what is written about the place and the inputs of a call."""
        if len(self._inputs) >= _SITES:
            self._inputs.clear()
        _, line, module, phase, random = key[:5]
        where = " ".join(place_in_words(self._lines.lines()[line]).split())
        row: dict[str, Any] = {"op": op.name, "module": module, "phase": phase, "where": where}
        row["inputs"] = [self._row(*one) for one in zip(op.names, args, op.reads, strict=False)]
        row["inputs"] += [self._row(name, value, name not in op.unread) for name, value in kwargs.items()]
        found = self._inputs[key] = (next(self._numbers), {**row, "random": True} if random else row)
        return found

    # -- writing --------------------------------------------------------------------------------------------------------------

    def _copied(self, op: _Op, module: str, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any] | None:
        """Return copies of the arguments of a call on the CPU if it is to be saved, or None."""
        if not self._saves(op.name, module):
            return None
        assert self._writer is not None
        size = sum(one.nbytes for one in tensors_in([*args, *kwargs.values()]))
        if size > self._save_left:
            if self._save_left >= 0:
                self._writer.add_note(f"tensors of call {self._writer.calls} and later ones were not saved: the limit is reached")
            self._save_left = -1
            return None
        self._save_left -= size
        with no_current_modes():
            given, named = mapped_call(_storable, *copied(op.overload, args, kwargs, home=True))
        return {"op": op.name, "args": given, "kwargs": named}

    def _saves(self, name: str, module: str) -> bool:
        assert self._writer is not None
        if (name, module) not in self._saved_by:
            plain = name.replace("._", ".").replace(".native_", ".")  # the names of the functions in torch
            names = (name, plain, name.rpartition(".")[0])
            found = [pattern for pattern in self._save if any(fnmatchcase(one, pattern) for one in names)]
            found += [one for one in self._save_modules if module == one or module.startswith(f"{one}.")]
            for one in found:
                self._unmatched.pop(one, None)
            self._saved_by[name, module] = bool(found)
        return self._saved_by[name, module] or self._writer.calls in self._save_calls

    def _write(
        self, given: tuple[int, dict[str, Any]], outputs: Sequence[tuple[str, Any, bool]], values: list[int], more: dict[str, Any]
    ) -> None:
        writer = self._writer
        assert writer is not None
        with self._lock:
            self._batches.start()
            parts: list[Any] = [given[0]]
            for _, value, read in outputs:
                self._see(value, read, parts)
            values += self._batches.taken()
            site = self._sites.get(key := tuple(parts))
            if site is None:
                if len(self._sites) >= _SITES:
                    self._sites.clear()
                site = self._sites[key] = writer.add_site({**given[1], "outputs": [self._row(*one) for one in outputs]})
            if "saved" in more:
                more = writer.save(writer.calls, more["saved"])
            writer.add_call(site, values, more)

    def _header(self, rank: int) -> dict[str, Any]:
        return {
            "rank": rank,
            "torch": torch.__version__,
            "eagerdecomp": __version__,
            "python": platform.python_version(),
            "machine": platform.node(),
            "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "threads": torch.get_num_threads(),
            "tf32": [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32],
            "command": list(self._command),
            "options": list(self._options),
        }


def _outputs(op: _Op, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> list[tuple[str, Any, bool]]:
    """Return the name and the value of each result, and of each argument that was written, and whether its values are defined."""
    if result is None:
        found = []
    elif isinstance(result, tuple):
        found = [(f"result {place}", one, place not in op.undefined) for place, one in enumerate(result) if one is not None]
    else:  # a list is one result
        found = [("result", result, 0 not in op.undefined)]
    for name, value in _written(op, args, kwargs).items():
        if value is not result and not any(value is one for one in leaves_of(result)):
            found.append((f"{name} afterwards", value, True))
    return found


def _written(op: _Op, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the name and the value of each argument that the op writes."""
    values = {**dict(zip(op.names, args, strict=False)), **kwargs}
    return {name: values[name] for name in (op.names[position] for position in op.written) if values.get(name) is not None}


def _on_cpu(tensor: Tensor) -> Tensor:
    # The copy from a device may need kernels that enter modes.
    with no_current_modes(), without_torch_function():
        return tensor.cpu()


def _readable(tensors: Sequence[Tensor]) -> bool:
    return all(has_values(one) and not is_zero_tensor(one) for one in tensors)


def _is_on_cpu(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    given = list(leaves_of([*args, *kwargs.values()]))
    devices = [one.device if isinstance(one, Tensor) else one for one in given if isinstance(one, (Tensor, torch.device))]
    return all(one.type == "cpu" for one in devices or [torch.get_default_device()])


def _uncounted(op: _Op, args: Sequence[Any]) -> list[Tensor]:
    """Return the tensors whose version counter torch does not bump under a mode, though it does without one: written lists."""
    if not op.writes_lists:
        return []
    lists = [args[position] for position in op.written if position < len(args) and isinstance(args[position], (list, tuple))]
    return [one for tensors in lists for one in tensors if isinstance(one, Tensor) and not one.is_inference()]


def _storable(value: Any) -> Any:
    """Return an argument as `torch.save` can store it: a memory format as text, and None for a generator."""
    if isinstance(value, torch.memory_format):
        return str(value)
    return None if isinstance(value, torch.Generator) else value


def _rank() -> int:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() else 0
