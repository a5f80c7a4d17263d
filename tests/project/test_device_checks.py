"""Each place that asks for the device of a tensor has a test that pins what other devices than the CPU get."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import eagerdecomp

PACKAGE = Path(eagerdecomp.__file__).parent
ROOT = Path(__file__).parents[2]

_ATTRIBUTES = ("is_cpu", "is_cuda", "is_meta")

#: A module and function -> the test, which fails if the check there is turned around.
CHECKED = {
    "_torch/dynamo.py:_whole_but_on_meta.run": "test_composites_are_not_decomposed_while_they_are_left_whole",
    "_torch/tensors.py:has_values": "test_has_values_is_true_of_dense_tensors_that_are_not_on_the_meta_device",
    "backends/inductor.py:_is_common": "test_programs_on_other_devices_are_declined",
    "backends/numpy/arrays.py:memory": "test_tensors_without_a_numpy_view_raise",
    "backends/numpy/factories.py:_copied_into": "test_copies_to_and_from_other_devices_are_torchs",
    "backends/numpy/factories.py:_here": "test_copies_to_and_from_other_devices_are_torchs",
    "backends/numpy/factories.py:_to_copy": "test_copies_to_and_from_other_devices_are_torchs",
    "conformance/checks.py:_differing": "test_they_are_right_in_this_process_too",
    "conformance/checks.py:_placement": "test_changes_of_global_state_are_found",
    "conformance/judge.py:_mover.move": "test_only_tensors_elsewhere_are_copied",
    "conformance/memory.py:to_cpu.bring": "test_they_are_right_in_this_process_too",
    "decomps/derived/foreach.py:_check_packed_scalars": "test_packed_scalars_are_checked",
    "decomps/derived/inplace_and_out.py:_filled_mask": "test_a_value_that_overlaps_its_target_is_refused_off_the_cpu",
    "decomps/image/upsample_antialias.py:_is_real": "test_dtypes_that_only_the_cpu_rejects_are_computed",
    "decomps/libraries/torchvision/checks.py:check_dtype": "test_off_the_cpu_torchvisions_kernels_take_every_floating_dtype",
    "decomps/linalg/lu.py:_is_covered": "test_without_exchanges_on_other_devices",
    "decomps/linalg/lu.py:_is_quick": "test_kernel_calls_of_triangles_and_lu",
    "decomps/matmul/recurrent.py:pad_packed_sequence": "test_batch_sizes_are_a_row_of_int64_on_the_cpu",
    "decomps/matmul/scaled_mm.py:_scaled_mm": "test_off_the_cpu_a_product_in_float8_saturates",
    "decomps/random/sampling.py:_randint_like": "test_a_bound_on_another_device_is_refused",
    "decomps/random/sampling.py:_rrelu": "test_dtypes_that_only_the_cpu_rejects_are_computed",
    "decomps/reduce/reductions.py:_std": "test_off_the_cpu_deviations_are_computed_in_float32_as_eager_does",
    "decomps/shape/indexing.py:_histc": "test_integers_are_counted_where_the_cpu_would_refuse_them",
    "decomps/sparse/conversions.py:_to_copy": "test_a_copy_of_a_sparse_tensor_has_no_elements_on_the_meta_device_only",
    "decomps/training/fused_optimizers.py:_read": "test_steps_on_another_device_are_not_read",
    "device/autocast.py:_cast": "test_autocast_leaves_what_it_does_not_cast",
    "device/parameters.py:keep_parameters.make.apply": "test_a_module_that_moves_keeps_its_parameters_and_ties",
    "device/printing.py:print_from_cpu.make.elements_as_text": "test_printing_needs_no_kernel_but_copies",
    "device/storages.py:_pickle_as_saved.reduce": "test_a_copy_has_memory_of_its_own_that_its_views_share_as_on_the_cpu",
    "device/storages.py:replace_storages.create": "test_storages_of_the_cpu_are_as_ever",
    "device/storages.py:replace_storages.new": "test_storages_of_the_cpu_are_as_ever",
    "device/storages.py:replace_storages.reduce_for_process": "test_storages_of_the_cpu_are_as_ever",
    "dispatcher/composite_gradient.py:_without_autocast": "test_dtypes_and_values_under_autocast_equal_eager",
    "eager/crashes.py:_coo_to_csr": "test_values_are_not_read_on_the_meta_device",
    "eager/crashes.py:_csr_to_coo": "test_values_are_not_read_on_the_meta_device",
    "eager/crashes.py:_pad_packed_sequence": "test_values_are_not_read_on_the_meta_device",
    "eager/crashes.py:_segment_reduce": "test_values_are_not_read_on_the_meta_device",
    "eager/generators.py:_default_generator": "test_kernels_draw_from_the_default_generator_of_their_device",
    "eager/generators.py:drawing_from": "test_a_generator_of_another_device_is_refused",
    "eager/generators.py:is_own": "test_a_generator_of_the_program_draws_eagers_numbers_by_default",
    "eager/generators.py:states_of": "test_kernels_draw_from_the_default_generator_of_their_device",
    "eager/observe.py:_copy": "test_copies_on_the_cpu_are_of_all_devices_but_meta",
    "eager/observe.py:at_home": "test_copies_on_the_cpu_are_of_all_devices_but_meta",
    "eager/verdict.py:_fact": "test_kinds_of_calls_are_of_a_device",
    "eager/verdict.py:_refusal_of_devices": "test_tensors_of_two_devices_meet_only_if_one_is_a_number_on_the_cpu",
    "eager/verdict.py:_size_by_meta": "test_the_meta_kernel_refuses_large_meta_tensors",
    "eager/verdict.py:ask_once": "test_dtypes_that_only_the_cpu_refuses_are_not_asked_about_elsewhere",
    "eager/verdict.py:is_too_large": "test_only_tensors_with_memory_are_too_large_to_ask_about",
    "frontends/graph_lowering.py:_Lowering._has_tensor_on_device": "test_a_graph_keeps_the_calls_on_other_devices",
    "frontends/installation.py:install": "test_devices_are_named_by_type",
    "ops/device_ops.py:check_device_type": "test_every_error_says_what_is_written_down",
    "ops/backend.py:Backend.of_device": "test_a_backend_of_a_device_has_the_ops_with_a_kernel_for_its_key",
    "ops/call_text.py:_plain_text": "test_the_short_text_of_a_call",
    "program/constant_hoisting.py:_can_be_cached": "test_values_on_other_devices_are_not_cached",
    "recording/recorder.py:ValueRecorder._form": "test_a_run_on_the_device_is_compared_with_one_on_the_cpu",
    "recording/recorder.py:ValueRecorder._see": "test_a_run_on_the_device_is_compared_with_one_on_the_cpu",
    "rules/blocks.py:run_in_blocks": "test_other_devices_run_few_large_kernels",
    "rules/compute.py:kept_number.number": "test_a_scalar_tensor_is_created_once_per_device",
    "rules/compute.py:kept_numbers.number": "test_a_scalar_tensor_is_created_once_per_device",
    "rules/error_notes.py:device_of": "test_torchs_kernels_are_eagers_on_the_cpu_and_without_data",
    "rules/refusals.py:_refused_result": "test_only_results_on_its_own_device_must_have_a_dtype_of_the_backend",
    "rules/refusals.py:refused_dtype": "test_only_tensors_of_its_own_device_must_have_a_dtype_of_the_backend",
    "rules/stacks.py:_are_plain": "test_small_tensors_of_a_list_are_computed_one_by_one",
    "rules/writeback.py:_block_sizes": "test_off_the_cpu_large_tensors_are_written_whole",
    "runtime/engine.py:_hides_data": "test_calls_whose_rules_read_data_run_on_meta_tensors_and_are_traced",
    "runtime/runtime.py:_natively_on_host.choose": "test_tensors_of_another_device_stay_decomposed",
    "runtime/runtime.py:_on_device.choose": "test_ops_on_other_devices_than_the_backends_are_not_decomposed",
    "tracing/guards.py:": "test_each_fact_that_a_rule_reads_becomes_a_guard",
    "verify/reproducer.py:_Writer._values": "test_a_script_that_reproduces_a_call_makes_its_tensors_on_the_device",
    "verify/reproducer.py:_options": "test_a_script_that_reproduces_a_call_makes_its_tensors_on_the_device",
    "verify/reproducer.py:_random_tensor": "test_a_script_that_reproduces_a_call_makes_its_tensors_on_the_device",
    "verify/wrappers.py:Verifying._not_verified": "test_a_call_without_a_meta_kernel_in_eager_is_no_difference",
    "verify/wrappers.py:_device_type": "test_tensors_of_the_cpu_are_none_of_the_devices",
}


def device_checks(source: str) -> Iterator[str]:
    """Yield the functions that read the type of a device, with the classes and functions around them; "" for code outside."""
    yield from _checks(ast.parse(source), "")


def _checks(node: ast.AST, within: str) -> Iterator[str]:
    if _reads_device(node):
        yield within
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        within = f"{within}.{node.name}".lstrip(".")
    for inner in ast.iter_child_nodes(node):
        yield from _checks(inner, within)


def _reads_device(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        of_device = isinstance(node.value, (ast.Attribute, ast.Name, ast.Call)) and "device" in ast.unparse(node.value)
        return node.attr in _ATTRIBUTES or (node.attr == "type" and of_device)
    return isinstance(node, ast.Constant) and node.value in _ATTRIBUTES


@pytest.mark.full
def test_every_check_of_a_device_has_a_test() -> None:
    found = {
        f"{path.relative_to(PACKAGE).as_posix()}:{function}"
        for path in PACKAGE.rglob("*.py")
        for function in device_checks(path.read_text(encoding="utf-8"))
    }
    assert found == CHECKED.keys()


@pytest.mark.full
def test_the_tests_exist() -> None:
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "examples" / "npu" / "tests").glob("*.py")]
    names = (re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE) for file in files)
    tests = Counter(name for of_file in names for name in of_file)
    assert {name: tests[name] for name in CHECKED.values() if tests[name] != 1} == {}, "one test has the name"
