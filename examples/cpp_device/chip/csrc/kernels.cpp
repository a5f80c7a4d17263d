// Kernels that compute, most of them in one line. All are functional but `fill_` and the random ones: `eagerdecomp` makes the
// in-place and out= forms of an op from its functional form.
#include "chip.h"

#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/ScalarOps.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/DistributionsHelper.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/native/Pow.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/ScatterGatherChecks.h>
#include <ATen/native/TypeProperties.h>
#include <c10/util/generic_math.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>

namespace chip {
namespace {

using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;
using at::TensorIterator;
template <class T>
using Maybe = std::optional<T>;

// Run code for each dtype of a group, as `scalar_t`. Others raise `"exp" not implemented for 'ComplexFloat'`.
#define FOR_ANY(dtype, name, ...) AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, dtype, name, __VA_ARGS__)
#define FOR_NUMBERS(dtype, name, ...) AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, name, __VA_ARGS__)
#define FOR_INTEGERS(dtype, name, ...) AT_DISPATCH_INTEGRAL_TYPES_AND(at::kBool, dtype, name, __VA_ARGS__)
#define FOR_FLOATS(dtype, name, ...) AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, name, __VA_ARGS__)
constexpr bool FLOATS_only = true, ANY_only = false, NUMBERS_only = false, INTEGERS_only = false;

// Call `f` for each element with its places in all tensors, in one thread. TensorIterator has broadcast their strides.
template <class F>
void each(TensorIterator iter, F f) {
  const int tensors = iter.ntensors();
  iter.for_each(
      [&](char** starts, const int64_t* strides, int64_t count) {
        c10::SmallVector<char*, 8> at(tensors);
        for (int64_t i = 0; i < count; i++) {
          for (int k = 0; k < tensors; k++) {
            at[k] = bytes_at(starts[k]) + i * strides[k];
          }
          f(at.data());
        }
      },
      /*grain_size=*/std::numeric_limits<int64_t>::max());
}

// The first tensor is written. If it is undefined, it is made: of this dtype, and with the strides that torch's kernels return.
TensorIterator over(Tensor& out, ScalarType dtype, at::ArrayRef<Tensor> inputs) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).declare_static_dtype_and_device(dtype, kDevice);
  config.resize_outputs(!out.defined()).add_output(out);
  for (const Tensor& input : inputs) {
    config.add_const_input(input);
  }
  TensorIterator iter = config.build();
  out = iter.output();
  return iter;
}

// -- pointwise ----------------------------------------------------------------------------------------------------------

ScalarType common_dtype(at::TensorList tensors, bool float_only = false) {
  const ScalarType dtype = at::native::result_type(tensors);
  return float_only && at::isIntegralType(dtype, /*includeBool=*/true) ? at::get_default_dtype_as_scalartype() : dtype;
}

// Return a tensor in another dtype. Scalars are tensors of the CPU without dimensions.
Tensor here(const Tensor& tensor, ScalarType dtype) {
  TORCH_CHECK(tensor.device() == kDevice || tensor.dim() == 0,
              "Expected all tensors to be on the same device, but found at least two devices, ", kDevice, " and ", tensor.device(), "!");
  return tensor.to(kDevice, dtype);
}

// Apply `f` to values of dtype T, computed in float32 for float16 and bfloat16. If it returns bools, so does the op.
template <class T, class F, size_t... I>
Tensor map(F f, const std::array<Tensor, sizeof...(I)>& inputs, std::index_sequence<I...>) {
  using Value = at::opmath_type<T>;
  using Result = std::invoke_result_t<F, decltype((void)I, Value{})...>;
  using Out = std::conditional_t<std::is_same_v<Result, bool>, bool, T>;
  Tensor out;
  each(over(out, c10::CppTypeToScalarType<Out>::value, inputs), [&](char** at) {
    *reinterpret_cast<Out*>(at[0]) = static_cast<Out>(f(static_cast<Value>(*reinterpret_cast<const T*>(at[I + 1]))...));
  });
  return out;
}

#define UNARY(name, DTYPES, ...)                                                                               \
  Tensor name(const Tensor& x) {                                                                               \
    const auto dtype = common_dtype({x}, DTYPES##_only);                                                       \
    const std::array<Tensor, 1> inputs{here(x, dtype)};                                                        \
    const auto f = [](auto a) { return __VA_ARGS__; };                                                         \
    return FOR_##DTYPES(dtype, #name, [&] { return map<scalar_t>(f, inputs, std::make_index_sequence<1>()); }); \
  }
#define BINARY(name, DTYPES, ...)                                                                              \
  Tensor name(const Tensor& x, const Tensor& y) {                                                              \
    const auto dtype = common_dtype({x, y}, DTYPES##_only);                                                    \
    const std::array<Tensor, 2> inputs{here(x, dtype), here(y, dtype)};                                        \
    const auto f = [](auto a, decltype(a) b) { return __VA_ARGS__; };                                          \
    return FOR_##DTYPES(dtype, #name, [&] { return map<scalar_t>(f, inputs, std::make_index_sequence<2>()); }); \
  }

template <class T>
T invert(T a) {
  return std::is_same_v<T, bool> ? a == 0 : static_cast<T>(~static_cast<int64_t>(a));
}

template <class T, class F>
T unless_integer(T a, F f) {
  if constexpr (std::is_integral_v<T>) {
    return a;
  } else {
    return f(a);
  }
}

template <class T>
T power(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return at::native::powi(a, b);
  } else {
    return std::pow(a, b);
  }
}

// Round the quotient down.
template <class T>
T floor_divide(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    TORCH_CHECK(b != 0, "ZeroDivisionError");
    return c10::div_floor_integer(a, b);
  } else {
    return c10::div_floor_floating(a, b);
  }
}

template <class T>
T modulo(T a, T b) {
  TORCH_CHECK(!std::is_integral_v<T> || b != 0, "ZeroDivisionError");
  return c10::div_mod(a, b);
}

// Round the quotient towards zero.
template <class T>
T truncate_divide(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    TORCH_CHECK(b != 0, "ZeroDivisionError");
    return a / b;
  } else {
    return std::trunc(a / b);
  }
}

UNARY(abs, NUMBERS, std::abs(a))
UNARY(atan, FLOATS, std::atan(a))
UNARY(bitwise_not, INTEGERS, invert(a))
UNARY(cos, FLOATS, std::cos(a))
UNARY(erf, FLOATS, std::erf(a))
UNARY(exp, FLOATS, std::exp(a))
UNARY(floor, NUMBERS, unless_integer(a, [](auto b) { return std::floor(b); }))
UNARY(log, FLOATS, std::log(a))
UNARY(neg, NUMBERS, -a)
UNARY(round, NUMBERS, unless_integer(a, [](auto b) { return std::nearbyint(b); }))
UNARY(sigmoid, FLOATS, 1 / (1 + std::exp(-a)))
UNARY(sin, FLOATS, std::sin(a))
UNARY(sqrt, FLOATS, std::sqrt(a))
UNARY(tanh, FLOATS, std::tanh(a))
BINARY(bitwise_and, INTEGERS, a & b)
BINARY(bitwise_or, INTEGERS, a | b)
BINARY(div, FLOATS, a / b)
BINARY(div_floor, NUMBERS, floor_divide(a, b))
BINARY(div_trunc, NUMBERS, truncate_divide(a, b))
BINARY(eq, ANY, a == b)
BINARY(ge, ANY, a >= b)
BINARY(gt, ANY, a > b)
BINARY(le, ANY, a <= b)
BINARY(lt, ANY, a < b)
BINARY(mul, ANY, a * b)
BINARY(ne, ANY, a != b)
BINARY(plus, ANY, a + b)
BINARY(pow, NUMBERS, power(a, b))
BINARY(remainder, NUMBERS, modulo(a, b))

Tensor add(const Tensor& x, const Tensor& y, const Scalar& alpha) {
  at::native::alpha_check(common_dtype({x, y}), alpha);
  return plus(x, alpha.equal(1) ? y : chip::mul(y, at::native::wrapped_scalar_tensor(alpha)));
}

Tensor sub(const Tensor& x, const Tensor& y, const Scalar& alpha) {
  at::native::sub_check(x, y);
  return chip::add(x, chip::neg(y), alpha);
}

Tensor div_mode(const Tensor& x, const Tensor& y, Maybe<std::string_view> mode) {
  TORCH_CHECK(!mode || *mode == "floor" || *mode == "trunc", "chip: rounding_mode must be None, 'floor' or 'trunc'");
  return !mode ? chip::div(x, y) : *mode == "floor" ? div_floor(x, y) : div_trunc(x, y);
}

Tensor where(const Tensor& condition, const Tensor& x, const Tensor& y) {
  TORCH_CHECK(condition.scalar_type() == at::kBool, "chip: the condition of where must be a bool tensor");
  const ScalarType dtype = common_dtype({x, y});
  const std::array<Tensor, 3> inputs{here(condition, at::kBool), here(x, dtype), here(y, dtype)};
  const size_t size = c10::elementSize(dtype);
  Tensor out;
  each(over(out, dtype, inputs), [&](char** at) { std::memcpy(at[0], *at[1] ? at[2] : at[3], size); });
  return out;
}

// -- reductions and sorting ---------------------------------------------------------------------------------------------

// Apply `f(const T* row, int64_t length)` to each row of elements that are reduced to one.
template <class T, class Out, class F>
Tensor reduce_rows(const Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, F f) {
  const auto reduced = at::native::make_dim_mask(dims, self.dim());
  std::vector<int64_t> order(self.dim());
  std::iota(order.begin(), order.end(), 0);
  std::stable_partition(order.begin(), order.end(), [&](int64_t dim) { return !reduced[dim]; });
  const Tensor rows = self.permute(order).contiguous();
  const auto shape = at::native::shape_from_dim_mask(self, reduced, keepdim);
  const Tensor out = at::empty(shape, self.options().dtype(c10::CppTypeToScalarType<Out>::value));
  const int64_t count = out.numel(), length = count ? rows.numel() / count : 0;
  for (int64_t i = 0; i < count; i++) {
    data<Out>(out)[i] = static_cast<Out>(f(data<T>(rows) + i * length, length));
  }
  return out;
}

// Sums are in float64 or int64.
template <class T>
using Sum = std::conditional_t<std::is_integral_v<T>, int64_t, double>;

Tensor sum(const Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, Maybe<ScalarType> dtype) {
  const bool integral = at::isIntegralType(self.scalar_type(), /*includeBool=*/true);
  const Tensor terms = self.to(dtype.value_or(integral ? at::kLong : self.scalar_type()));
  return FOR_NUMBERS(terms.scalar_type(), "sum", [&] {
    return reduce_rows<scalar_t, scalar_t>(terms, dims, keepdim, [](const scalar_t* row, int64_t length) {
      return std::accumulate(row, row + length, Sum<scalar_t>{0}, [](auto a, scalar_t b) { return a + static_cast<decltype(a)>(b); });
    });
  });
}

// Order numbers, with NaN above all.
template <class T>
bool less(T a, T b) {
  return a < b || (b != b && a == a);
}

template <class T>
const T* largest(const T* row, int64_t length) {
  TORCH_CHECK_INDEX(length > 0, "chip: a maximum of no elements has no value");
  return std::max_element(row, row + length, less<T>);
}

Tensor amax(const Tensor& self, IntArrayRef dims, bool keepdim) {
  return FOR_ANY(self.scalar_type(), "amax", [&] {
    const auto f = [](const scalar_t* row, int64_t length) { return *largest(row, length); };
    return reduce_rows<scalar_t, scalar_t>(self, dims, keepdim, f);
  });
}

Tensor argmax(const Tensor& self, Maybe<int64_t> dim, bool keepdim) {
  return FOR_NUMBERS(self.scalar_type(), "argmax", [&] {
    const auto f = [](const scalar_t* row, int64_t length) { return largest(row, length) - row; };
    return reduce_rows<scalar_t, int64_t>(self, dim ? at::OptionalIntArrayRef(*dim) : std::nullopt, keepdim, f);
  });
}

std::tuple<Tensor, Tensor> sort(const Tensor& self, Maybe<bool> /*stable, always*/, int64_t dim, bool descending) {
  const Tensor rows = self.transpose(dim, -1).contiguous();
  const Tensor values = at::empty_like(rows), indices = at::empty_like(rows, at::kLong);
  const int64_t length = rows.dim() ? rows.size(-1) : 1;
  FOR_ANY(rows.scalar_type(), "sort", [&] {
    for (int64_t start = 0; start < rows.numel(); start += length) {
      const scalar_t* row = data<scalar_t>(rows) + start;
      int64_t* index = data<int64_t>(indices) + start;
      std::iota(index, index + length, 0);
      std::stable_sort(index, index + length, [&](int64_t a, int64_t b) { return descending ? less(row[b], row[a]) : less(row[a], row[b]); });
      std::transform(index, index + length, data<scalar_t>(values) + start, [&](int64_t i) { return row[i]; });
    }
  });
  return {values.transpose(dim, -1).contiguous(), indices.transpose(dim, -1).contiguous()};
}

// -- matrix products ----------------------------------------------------------------------------------------------------

Tensor bmm(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.dim() == 3 && other.dim() == 3 && self.size(0) == other.size(0) && self.size(2) == other.size(1) &&
                  self.scalar_type() == other.scalar_type(),
              "chip: cannot multiply ", self.toString(), self.sizes(), " by ", other.toString(), other.sizes());
  const Tensor a = self.contiguous(), b = other.contiguous();
  const int64_t m = a.size(1), k = a.size(2), n = b.size(2);
  const Tensor out = at::empty({a.size(0), m, n}, a.options());
  FOR_NUMBERS(a.scalar_type(), "bmm", [&] {
    std::vector<Sum<scalar_t>> row(n);
    for (int64_t i = 0; i < a.size(0) * m; i++) {
      std::fill(row.begin(), row.end(), 0);
      for (int64_t j = 0; j < k; j++) {
        const auto factor = static_cast<Sum<scalar_t>>(data<scalar_t>(a)[i * k + j]);
        const scalar_t* factors = data<scalar_t>(b) + (i / m * k + j) * n;
        for (int64_t c = 0; c < n; c++) {
          row[c] += factor * static_cast<Sum<scalar_t>>(factors[c]);
        }
      }
      std::transform(row.begin(), row.end(), data<scalar_t>(out) + i * n, [](auto one) { return static_cast<scalar_t>(one); });
    }
  });
  return out;
}

Tensor mm(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.dim() == 2 && other.dim() == 2, "chip: cannot multiply ", self.sizes(), " by ", other.sizes(), " as matrices");
  return chip::bmm(self.unsqueeze(0), other.unsqueeze(0)).squeeze(0);
}

// -- moving elements ----------------------------------------------------------------------------------------------------

Tensor cat(const at::ITensorListRef& tensors, int64_t dim) {
  std::vector<Tensor> parts(tensors.begin(), tensors.end());
  const auto options = parts.at(0).options().dtype(at::native::result_type(tensors));
  const auto is_ignored = [](const Tensor& one) { return one.dim() == 1 && one.numel() == 0; };
  parts.erase(std::remove_if(parts.begin(), parts.end(), is_ignored), parts.end());
  if (parts.empty()) {
    return at::empty({0}, options);
  }
  dim = c10::maybe_wrap_dim(dim, parts[0].dim());
  TORCH_CHECK(parts[0].dim() > 0, "zero-dimensional tensors cannot be concatenated");
  auto shape = parts[0].sizes().vec();
  shape[dim] = 0;
  for (const Tensor& one : parts) {
    auto expected = shape;
    expected[dim] = one.dim() > dim ? one.size(dim) : 0;
    TORCH_CHECK(one.sizes() == IntArrayRef(expected), "chip: cannot concatenate sizes ", parts[0].sizes(), " and ", one.sizes(),
                " in dimension ", dim);
    shape[dim] += one.size(dim);
  }
  const Tensor out = at::empty(shape, options);
  int64_t start = 0;
  for (const Tensor& one : parts) {
    out.narrow(dim, start, one.size(dim)).copy_(one);
    start += one.size(dim);
  }
  return out;
}

// Return the index at a place, between `least` and `size`.
int64_t checked(const char* place, int64_t size, int64_t least) {
  const int64_t index = *reinterpret_cast<const int64_t*>(place);
  TORCH_CHECK_INDEX(least <= index && index < size, "index ", index, " is out of bounds for dimension with size ", size);
  return index < 0 ? index + size : index;
}

// For gather and scatter: call `f` for each element of the index, with the place in self that it names, and its place in `other`.
template <class F>
void along(const char* name, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& other, F f) {
  dim = c10::maybe_wrap_dim(dim, self.dim());
  at::native::scatter_gather_dtype_check(name, self, index, other);
  at::native::scatter_shape_check(self, dim, index, other);
  const auto as_vector = [](const Tensor& one) { return one.dim() == 0 ? one.unsqueeze(0) : one; };
  const Tensor target = as_vector(self), source = as_vector(other), places = as_vector(index).to(at::kLong);
  auto strides = target.strides().vec();
  const int64_t step = std::exchange(strides[dim], 0) * target.itemsize(), size = target.size(dim);
  Tensor row = target.as_strided(places.sizes(), strides);
  each(over(row, self.scalar_type(), {source.as_strided(places.sizes(), source.strides()), places}),
       [&](char** at) { f(at[0] + checked(at[2], size, 0) * step, at[1]); });
}

Tensor gather(const Tensor& self, int64_t dim, const Tensor& index, bool /*sparse_grad*/) {
  const Tensor out = at::empty(index.sizes(), self.options());
  along("gather", self, dim, index, out, [size = self.itemsize()](const char* from, char* to) { std::memcpy(to, from, size); });
  return out;
}

Tensor scatter(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  Tensor out = self.clone();
  along("scatter", out, dim, index, source, [size = self.itemsize()](char* to, const char* from) { std::memcpy(to, from, size); });
  return out;
}

template <class T>
void add_to(char* to, const char* from) {
  T& sum = *reinterpret_cast<T*>(to);
  sum = static_cast<T>(sum + *reinterpret_cast<const T*>(from));
}

Tensor scatter_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  Tensor out = self.clone();
  FOR_ANY(out.scalar_type(), "scatter_add", [&] { along("scatter_add", out, dim, index, source, add_to<scalar_t>); });
  return out;
}

using Indices = c10::List<Maybe<Tensor>>;

// For index and index_put: a view of self that does not move along indexed dimensions, the indices, and their steps in bytes.
struct Indexed {
  Tensor view;
  std::vector<Tensor> indices;
  std::vector<int64_t> sizes, steps;

  Indexed(Tensor self, const Indices& given) {
    at::native::checkIndexTensorTypes(given, /*allow_int=*/true);
    auto by_dim = at::expand_outplace(at::native::expandTensors(self, given, /*ensure_same_device=*/true));
    TORCH_CHECK_INDEX(static_cast<int64_t>(by_dim.size()) <= self.dim(), "too many indices for tensor of dimension ", self.dim());
    by_dim.resize(self.dim());
    if (!at::native::hasContiguousSubspace(by_dim)) {
      std::tie(self, by_dim) = at::native::transposeToFront(self, by_dim);
    }
    std::vector<int64_t> shape, strides;
    for (int64_t d = 0; d < self.dim(); d++) {
      if (!by_dim[d].defined()) {
        shape.push_back(self.size(d));
        strides.push_back(self.stride(d));
        for (Tensor& index : indices) {
          index = index.unsqueeze(-1); // broadcast over this dimension
        }
        continue;
      }
      if (indices.empty()) {
        shape.insert(shape.end(), by_dim[d].sizes().begin(), by_dim[d].sizes().end());
        strides.resize(shape.size(), 0);
      }
      indices.push_back(by_dim[d].to(at::kLong));
      sizes.push_back(self.size(d));
      steps.push_back(self.stride(d) * static_cast<int64_t>(self.itemsize()));
    }
    view = self.as_strided(shape, strides);
  }

  // Call `f` with the places in `out` and in `input`, one of which is the view, and with the step from there.
  template <class F>
  void run(Tensor out, const Tensor& input, F f) const {
    std::vector<Tensor> inputs{input};
    inputs.insert(inputs.end(), indices.begin(), indices.end());
    each(over(out, out.scalar_type(), inputs), [&](char** at) {
      int64_t step = 0;
      for (size_t i = 0; i < indices.size(); i++) {
        step += checked(at[2 + i], sizes[i], -sizes[i]) * steps[i];
      }
      f(at[0], at[1], step);
    });
  }
};

Tensor index(const Tensor& self, const Indices& indices) {
  const Indexed found(self, indices);
  const Tensor out = at::empty(found.view.sizes(), self.options());
  found.run(out, found.view, [size = self.itemsize()](char* to, char* from, int64_t step) { std::memcpy(to, from + step, size); });
  return out;
}

Tensor index_put(const Tensor& self, const Indices& indices, const Tensor& values, bool accumulate) {
  TORCH_CHECK_INDEX(self.scalar_type() == values.scalar_type(), "Index put requires the source and destination dtypes match, got ",
                    self.scalar_type(), " for the destination and ", values.scalar_type(), " for the source.");
  Tensor out = self.clone();
  const Indexed found(out, indices);
  FOR_ANY(out.scalar_type(), "index_put", [&] {
    found.run(found.view, values.to(kDevice), [&](char* to, char* from, int64_t step) {
      accumulate ? add_to<scalar_t>(to + step, from) : void(std::memcpy(to + step, from, sizeof(scalar_t)));
    });
  });
  return out;
}

Tensor nonzero(const Tensor& self) {
  const Tensor flags = self.to(at::kBool).contiguous();
  const bool* flag = data<bool>(flags);
  const Tensor out = at::empty({std::count(flag, flag + flags.numel(), true), self.dim()}, self.options().dtype(at::kLong));
  int64_t* place = data<int64_t>(out);
  for (int64_t i = 0; i < flags.numel(); i++) {
    for (int64_t d = 0; flag[i] && d < self.dim(); d++) {
      *place++ = i / flags.stride(d) % self.size(d);
    }
  }
  return out;
}

// -- factories and random numbers ---------------------------------------------------------------------------------------

// Write `f()` to each element, in the order of a contiguous tensor.
template <class T, class F>
void fill_with(Tensor& self, F f) {
  const Tensor out = self.contiguous(); // self, or a copy
  std::generate_n(data<T>(out), out.numel(), [&] { return static_cast<T>(f()); });
  if (!out.is_same(self)) {
    self.copy_(out);
  }
}

Tensor& fill_(Tensor& self, const Scalar& value) {
  FOR_ANY(self.scalar_type(), "fill_", [&] {
    each(over(self, self.scalar_type(), {}), [one = static_cast<scalar_t>(value.to<at::opmath_type<scalar_t>>())](char** at) { *reinterpret_cast<scalar_t*>(at[0]) = one; });
  });
  return self;
}

Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, Maybe<ScalarType> dtype, Maybe<at::Layout>,
              Maybe<at::Device> device, Maybe<bool>) {
  const bool integral = start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
  const ScalarType type = dtype.value_or(integral ? at::kLong : at::get_default_dtype_as_scalartype());
  const double count = std::ceil((end.toDouble() - start.toDouble()) / step.toDouble());
  const double sign = step.toDouble() * (end.toDouble() - start.toDouble());
  TORCH_CHECK(sign >= 0 && count >= 0, "chip: arange from ", start, " to ", end, " by ", step, " has no end"); // also if it is NaN
  Tensor out = at::empty({static_cast<int64_t>(count)}, at::TensorOptions(device.value_or(kDevice)).dtype(type));
  FOR_NUMBERS(type, "arange", [&] {
    using Value = Sum<scalar_t>;
    fill_with<scalar_t>(out, [&, i = Value{0}]() mutable { return start.to<Value>() + step.to<Value>() * i++; });
  });
  return out;
}

template <class Distribution>
Tensor& sample(Tensor& self, const Maybe<at::Generator>& given, Distribution distribution) {
  auto* generator = at::get_generator_or_default<Generator>(given, default_generator());
  const std::lock_guard<std::mutex> lock(generator->mutex_);
  FOR_FLOATS(self.scalar_type(), "random numbers", [&] { fill_with<scalar_t>(self, [&] { return distribution(generator); }); });
  return self;
}

Tensor& uniform_(Tensor& self, double from, double to, Maybe<at::Generator> generator) {
  return sample(self, generator, at::uniform_real_distribution<float>(static_cast<float>(from), static_cast<float>(to)));
}

Tensor& normal_(Tensor& self, double mean, double std, Maybe<at::Generator> generator) {
  TORCH_CHECK(std >= 0, "normal expects std >= 0.0, but found std ", std);
  return sample(self, generator, at::normal_distribution<double>(mean, std));
}

} // namespace

// Register a kernel whose function is named as the op, or as its overload that takes two tensors.
#define K(name) KERNEL(#name, name);
#define T(name) KERNEL(#name ".Tensor", name);

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  K(abs) K(atan) K(bitwise_not) K(cos) K(erf) K(exp) K(floor) K(log) K(neg) K(round) K(sigmoid) K(sin) K(sqrt) K(tanh)
  T(add) T(bitwise_and) T(bitwise_or) T(div) T(eq) T(ge) T(gt) T(le) T(lt) T(mul) T(ne) T(remainder) T(sub)
  K(amax) K(argmax) K(mm) K(bmm) K(cat) K(gather) K(scatter_add) T(index) K(index_put) K(nonzero)
  K(uniform_) K(normal_)
  KERNEL("arange.start_step", arange);
  KERNEL("fill_.Scalar", fill_);
  KERNEL("div.Tensor_mode", div_mode);
  KERNEL("pow.Tensor_Tensor", pow);
  KERNEL("scatter.src", scatter);
  KERNEL("sort.stable", sort);
  KERNEL("sum.dim_IntList", sum);
  KERNEL("where.self", where);
}

} // namespace chip
