"""Reproducers: scripts that make one call on a backend, and exit with an error if it differs from eager."""

from __future__ import annotations

import base64
import io
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.eager.observe import mapped, mapped_call, resolved
from eagerdecomp.eager.strides import in_order, is_dense, memory_order
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import NAMED_SETS, core_aten, prims
from eagerdecomp.ops.schema import tensors_in
from eagerdecomp.rules.rule import Rule

__all__ = ["call_script", "Named", "named_backend", "named_by_spec", "named_device", "reproducer", "resized"]

# Maximum number of elements in all tensors of a call. A larger call is reduced, if the smaller call still fails.
_MAX_KEPT_ELEMENTS = 16

# The same limit after the reduction. Above it, large tensors are replaced by random ones, if the call still fails.
_MAX_LITERAL_ELEMENTS = 64

# Maximum length of the encoded tensors in the script. Longer data goes to a file beside the script.
_MAX_EMBEDDED_CHARACTERS = 200_000

# Maximum time to search for a smaller call, in seconds.
_SEARCH_SECONDS = 10.0


@dataclass(frozen=True)
class Named:
    """The code by which a script refers to a backend and its rules.

    Attributes:
        imports: the import lines.
        backend: an expression for the backend, or for the op set.
        rules: an expression for the rules, or for one rule; "" without rules.
    """

    imports: tuple[str, ...]
    backend: str
    rules: str = ""


def named_backend(backend: Backend, rules: Sequence[Rule], given: Any = None, given_rules: Any = None) -> Named:
    """Return the code by which a script refers to a backend and rules of the running program.

    Args:
        backend: the backend.
        rules: the rules.
        given: the object that the caller passed as the backend; a module may hold it.
        given_rules: the object that the caller passed as the rules.
    """
    imports: list[str] = []
    words = _imported(given if given is not None else backend, imports) or _set_text(backend, imports)
    rules_text = ""
    if rules:
        rules_text = _imported(given_rules, imports) or ""
        found = [] if rules_text else [_imported(rule, imports) for rule in rules]
        if not rules_text and all(found):
            rules_text = f"[{', '.join(one for one in found if one)}]"
        elif not rules_text:
            rules_text = "rules"
            imports.append("rules = ...  # yours: " + ", ".join(rule.where for rule in rules))
    return Named(tuple(dict.fromkeys(imports)), words, rules_text)


def named_by_spec(backend: str, rules: str = "", *, ops: str = "") -> Named:
    """Return the code by which a script refers to what the command line names: ``module:name``, or an op set as in ``--ops``."""
    imports: list[str] = []
    if backend:
        words = _spec_text(backend, imports)
    elif ops in NAMED_SETS:
        words = f"ed.{NAMED_SETS[ops].__name__}()"
    else:
        imports.append("from eagerdecomp.ops.opset_file import op_set_from")
        words = f"op_set_from({str(Path(ops).resolve())!r})"
    rules_text = _spec_text(rules, imports) if rules else ""
    return Named(tuple(dict.fromkeys(imports)), words, rules_text)


def named_device(device_type: str, modules: Sequence[str]) -> Named:
    """Return the code by which a script refers to what a device can run, after an import of these modules."""
    lines: list[str] = []
    for module_name in modules:
        folder = _folder(sys.modules.get(module_name), module_name)
        lines.extend([f"sys.path.insert(0, {folder!r})"] if folder else [])
        lines.append(f"import {module_name}")
    return Named(tuple(dict.fromkeys(lines)), f"ed.Backend.of_device({device_type!r})")


def _spec_text(spec: str, imports: list[str]) -> str:
    module_name, _, name = spec.partition(":")
    folder = _folder(sys.modules.get(module_name), module_name)
    imports.extend([f"sys.path.insert(0, {folder!r})"] if folder else [])
    imports.append(f"from {module_name} import {name.partition('.')[0]}")
    return name


def _set_text(backend: Backend, imports: list[str]) -> str:
    if backend.kernels or backend.compile is not None:
        imports.append(f"backend = ...  # yours: {backend!r}")
        return "backend"
    for words, named in (("ed.core_aten()", core_aten()), ("ed.prims()", prims())):
        if backend.ops == named:
            return words
    imports.append("ops = ed.OpSet(")
    imports.append(f"    {[str(op) for op in backend.ops]!r}")
    imports.append(")" + ("  # and their predicates" if any(backend.ops.predicate(op) for op in backend.ops) else ""))
    return "ops"


def _imported(value: Any, imports: list[str]) -> str | None:
    """Return the name of a value that is a global of an imported module, and add its import. Return None if no module has it."""
    if value is None:
        return None
    main = sys.modules.get("__main__")
    for module_name, module in sorted(sys.modules.items()):
        if module is main or module_name.partition(".")[0] in ("eagerdecomp", "torch", "builtins"):
            continue
        for name, held in list(getattr(module, "__dict__", {}).items()):
            if held is value and name.isidentifier() and not name.startswith("_"):
                folder = _folder(module, module_name)
                if folder:
                    imports.append(f"sys.path.insert(0, {folder!r})")
                imports.append(f"from {module_name} import {name}")
                return str(name)
    return None


def _folder(module: Any, name: str) -> str:
    """Return the folder to add to ``sys.path`` to import a module; "" if Python finds the module without it."""
    file = getattr(module, "__file__", None)
    if not file or "site-packages" in file:
        return ""
    above = name.count(".") + (Path(file).name == "__init__.py")
    return str(Path(file).resolve().parents[above])


# -- the script -----------------------------------------------------------------------------------------------------------


def reproducer(
    op: OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    named: Named,
    about: str,
    fails: Callable[[Sequence[Any], Mapping[str, Any]], bool],
    times: int,
) -> tuple[str, bytes]:
    """Return a script that makes a call on a backend and fails if it differs from eager, and the content of the file that it loads.

    Args:
        op: the overload.
        args: positional arguments.
        kwargs: keyword arguments.
        named: the code for the backend.
        about: a description of the fault, for the first lines of the script.
        fails: returns whether a call with other arguments has the same fault; used to find a smaller call.
        times: how often the script makes the call.
    """
    drawn: dict[int, str] = {}
    if _elements(args, kwargs) > _MAX_KEPT_ELEMENTS and _checks_arguments(op):
        args, kwargs = _smaller(args, kwargs, fails)
    if _elements(args, kwargs) > _MAX_LITERAL_ELEMENTS and _checks_arguments(op):
        args, kwargs, drawn = _with_random_tensors(args, kwargs, fails)
    guard = "torch.inference_mode()" if torch.is_inference_mode_enabled() else "torch.no_grad()"
    rules = f", rules={named.rules}" if named.rules else ""
    ending = [
        f"given = [inputs() for _ in range({times})]  # recorded, compiled, run",
        "",
        "",
        "def calls():",
        "    for args, kwargs in given:",
        f"        torch.ops.{op}(*args, **kwargs)",
        "",
        "",
        f"with {guard}:",
        f"    found = ed.blame(calls, {named.backend}{rules}, reproducers=False)",
        "print(found)",
        "sys.exit(1 if found else 0)",
    ]
    return call_script(args, kwargs, named, about, ending, drawn)


def call_script(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    named: Named,
    about: str,
    ending: Sequence[str],
    drawn: Mapping[int, str] | None = None,
) -> tuple[str, bytes]:
    """Return a script whose function ``inputs()`` makes the arguments of a call, and the content of the file that it loads.

    Args:
        args: positional arguments.
        kwargs: keyword arguments.
        named: the code for the backend.
        about: a description of the fault, for the first lines of the script.
        ending: the code that uses the arguments; it must exit with 1 while the fault exists.
        drawn: id of a tensor -> the expression that makes it.
    """
    writer = _Writer(drawn or {})
    words = [writer.text(value) for value in args]
    named_words = [f"{name!r}: {writer.text(value)}" for name, value in kwargs.items()]
    data = writer.data()
    loaded, large = _loading(data)
    lines = [
        *_quoted(about).splitlines(),
        "",
        "Exit code 1 if the fault is still there, and 0 if it is fixed.",
        '"""',
        "",
        *_standard_imports(named, data, bool(large)),
        "import torch",
        "",
        "import eagerdecomp as ed",
        "",
        *named.imports,
        "inf, nan = float('inf'), float('nan')",
        *loaded,
        "",
        "",
        "def inputs():",
        *(f"    {line}" for line in writer.lines),
        f"    return [{', '.join(words)}], {{{', '.join(named_words)}}}",
        "",
        "",
        *ending,
    ]
    return "\n".join(lines) + "\n", large


def _quoted(text: str) -> str:
    """Return text as the first lines of a docstring."""
    return '"""' + text.replace("\\", "/").replace('"""', "...")


def _standard_imports(named: Named, data: bytes, large: bool) -> Iterator[str]:
    if data:
        yield from (("import os",) if large else ("import base64", "import io"))
    yield "import sys"
    if data and not large:
        yield "import zlib"
    yield ""


def _loading(data: bytes) -> tuple[list[str], bytes]:
    """Return the lines of a script that load its tensors, and the content of the file that they load."""
    if not data:
        return [], b""
    packed = base64.b64encode(zlib.compress(data, 9)).decode()
    if len(packed) > _MAX_EMBEDDED_CHARACTERS:
        return ["saved = torch.load(os.path.splitext(os.path.abspath(__file__))[0] + '.pt')  # the file beside this script"], data
    parts = [packed[start : start + 110] for start in range(0, len(packed), 110)]
    lines = ["saved = torch.load(io.BytesIO(zlib.decompress(base64.b64decode("]
    return [*lines, *(f"    {part!r}" for part in parts), "))))"], b""


class _Writer:
    """Writes arguments as Python text. `lines` make tensors that share memory; `saved` are tensors that are loaded from a file."""

    def __init__(self, drawn: Mapping[int, str]) -> None:
        self.lines: list[str] = []
        self._saved: list[Tensor] = []
        self._random_tensor = drawn
        self._names: dict[int, str] = {}
        self._bases: dict[tuple[int, torch.dtype], str] = {}
        self._kept: list[Tensor] = []

    def data(self) -> bytes:
        """Return the tensors that the script loads, as the content of a file."""
        if not self._saved:
            return b""
        file = io.BytesIO()
        torch.save(self._saved, file)
        return file.getvalue()

    def text(self, value: Any) -> str:
        """Return an argument as Python text."""
        if isinstance(value, Tensor):
            if id(value) not in self._names:
                self._names[id(value)] = name = f"x{len(self._names)}"
                self._kept.append(value)
                self.lines.append(f"{name} = {self._random_tensor.get(id(value)) or self._tensor(value)}")
            return self._names[id(value)]
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(map(self.text, value)) + "]"
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"
        if isinstance(value, torch.Generator):
            return f"torch.Generator({str(value.device)!r}).manual_seed(0)"
        return repr(value)

    def _tensor(self, tensor: Tensor) -> str:
        if tensor.is_conj():
            return f"{self._tensor(tensor.conj())}.conj()"
        if tensor.is_neg():
            return f"torch._neg_view({self._tensor(torch.ops.aten._neg_view(tensor))})"
        if not is_dense(tensor) or tensor.storage_offset() or tensor.untyped_storage().nbytes() != tensor.nbytes:
            owner = (int(tensor.untyped_storage()._cdata), tensor.dtype)
            if owner not in self._bases:
                whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
                self._bases[owner] = name = f"memory{len(self._bases)}"
                self.lines.append(f"{name} = {self._values(whole)}")
            base = self._bases[owner]
            return f"{base}.as_strided({list(tensor.shape)}, {list(tensor.stride())}, {tensor.storage_offset()})"
        if not tensor.is_contiguous():
            return f"{_empty_text(tensor)}.copy_({self._values(tensor.contiguous())})"
        return self._values(tensor)

    def _values(self, tensor: Tensor) -> str:
        if not tensor.numel():
            return _empty_text(tensor)
        if tensor.numel() > _MAX_LITERAL_ELEMENTS:
            self._saved.append(tensor.clone().cpu())
            return f"saved[{len(self._saved) - 1}].clone()" + ("" if tensor.is_cpu else f".to({str(tensor.device)!r})")
        if tensor.is_complex():
            return f"torch.view_as_complex({self._values(torch.view_as_real(tensor))})"
        digits = {torch.float32: 9, torch.float16: 5, torch.bfloat16: 4}.get(tensor.dtype)
        values = tensor.tolist()
        if digits is not None:
            values = _rounded(values, digits)
        return f"torch.tensor({values!r}, {_options(tensor)})"


def _rounded(value: Any, digits: int) -> Any:
    return [_rounded(item, digits) for item in value] if isinstance(value, list) else float(f"{value:.{digits}g}")


def _empty_text(tensor: Tensor) -> str:
    return f"torch.empty_strided({list(tensor.shape)}, {list(tensor.stride())}, {_options(tensor)})"


def _options(tensor: Tensor) -> str:
    return f"dtype={tensor.dtype}" + ("" if tensor.is_cpu else f", device={str(tensor.device)!r}")


# -- smaller calls ---------------------------------------------------------------------------------------------------------


def _elements(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    return sum(one.numel() for one in tensors_in([*args, *kwargs.values()]))


def _checks_arguments(op: OpOverload) -> bool:
    """Return whether eager's kernel rejects arguments that do not fit together. Other kernels may read out of bounds."""
    return torch.Tag.pointwise in op.tags or (torch.Tag.core in op.tags and "backward" not in op._schema.name)


def _smaller(
    args: Sequence[Any], kwargs: Mapping[str, Any], fails: Callable[[Sequence[Any], Mapping[str, Any]], bool]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return a smaller call that fails too. Reduce one size at a time, in all arguments, as long as the call fails."""
    until = time.monotonic() + _SEARCH_SECONDS
    for size in sorted({size for one in tensors_in([*args, *kwargs.values()]) for size in one.shape if size > 1}, reverse=True):
        for less in sorted({1, 2, 3, 4, 8, 16, size // 2}):
            if not 0 < less < size or time.monotonic() > until:
                continue
            changed = resized(args, kwargs, size, 0, less)
            if changed is not None and fails(*changed):
                args, kwargs = changed
                break
    return args, kwargs


def resized(
    args: Sequence[Any], kwargs: Mapping[str, Any], size: int, start: int, less: int
) -> tuple[list[Any], dict[str, Any]] | None:
    """Return a call with each size `size` replaced by `less`; tensors keep the elements from `start` on, and become contiguous.

    Return None if tensors share memory, which they would not share afterwards.
    """
    made: dict[int, Tensor] = {}

    def change(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) not in made:
            made[id(value)] = _resized_tensor(value, size, start, less)
        return made[id(value)]

    def cut(value: Any) -> Any:
        if isinstance(value, (list, tuple)) and value and all(type(one) is int for one in value):
            return [less if one == size else one for one in value]
        return mapped(value, change)

    given = list(tensors_in([*args, *kwargs.values()]))
    distinct = {id(one): one for one in given}.values()
    if len({one.untyped_storage()._cdata for one in distinct}) < len(distinct):
        return None  # do not resize tensors that share memory
    return [cut(value) for value in args], {name: cut(value) for name, value in kwargs.items()}


def _resized_tensor(tensor: Tensor, size: int, start: int, less: int) -> Tensor:
    if size not in tensor.shape:
        return tensor
    part = resolved(tensor)[tuple(slice(start, start + less) if one == size else slice(None) for one in tensor.shape)]
    return _with_strides(part, part.shape, memory_order(tensor))


def _with_strides(values: Tensor, shape: Sequence[int], order: Sequence[int]) -> Tensor:
    strides = in_order(shape, order)
    return torch.empty_strided(list(shape), strides, dtype=values.dtype, device=values.device).copy_(values)


def _with_random_tensors(
    args: Sequence[Any], kwargs: Mapping[str, Any], fails: Callable[[Sequence[Any], Mapping[str, Any]], bool]
) -> tuple[Sequence[Any], Mapping[str, Any], dict[int, str]]:
    """Return the call with its large tensors replaced by random ones, if it still fails, and the expression for each of these."""
    drawn: dict[int, tuple[Tensor, str]] = {}

    def draw(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.numel() <= _MAX_LITERAL_ELEMENTS or not is_dense(value) or value.is_complex():
            return value
        if id(value) not in drawn:
            drawn[id(value)] = _random_tensor(value, len(drawn))
        return drawn[id(value)][0]

    other = mapped_call(draw, args, kwargs)
    if not drawn or not fails(*other):
        return args, kwargs, {}
    return *other, {id(tensor): text for tensor, text in drawn.values()}


def _random_tensor(tensor: Tensor, seed: int) -> tuple[Tensor, str]:
    shape, dtype = list(tensor.shape), tensor.dtype
    source = f"generator=torch.Generator().manual_seed({seed})"
    if dtype.is_floating_point:
        words = f"torch.randn({shape}, {source}).to({dtype})"
    elif dtype is torch.bool:
        words = f"torch.rand({shape}, {source}) < 0.5"
    else:
        least, most = int(tensor.min()), int(tensor.max())
        words = f"torch.randint({least}, {most + 1}, {shape}, {source}).to({dtype})"
    if not tensor.is_contiguous():
        words = f"torch.empty_strided({shape}, {list(tensor.stride())}, dtype={dtype}).copy_({words})"
    if not tensor.is_cpu:
        words = f"({words}).to({str(tensor.device)!r})"
    made: Tensor = eval(words, {"torch": torch})
    return made, words
