// Memory of the device, and the ops that allocate it, resize it, make views of it, and copy it.
#include "chip.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/Resize.h>
#include <c10/util/strides.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

namespace chip {
namespace {

constexpr size_t kBytes = size_t{8} << 30; // of the device

char* reserve(int protection) {
  void* start = mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(start != MAP_FAILED, "chip: cannot reserve ", kBytes, " bytes of address space");
  return static_cast<char*>(start);
}

// Device addresses are in a range that this process can neither read nor write. So code that takes a pointer of the device for one
// of the CPU's crashes at once, as with a real device, instead of computing on the CPU. The bytes are in a second range.
struct Memory final : c10::Allocator {
  char* const addresses = reserve(PROT_NONE);
  char* const bytes = reserve(PROT_READ | PROT_WRITE);
  std::mutex mutex;
  size_t end = 0; // of what was ever allocated
  int64_t used = 0;
  std::unordered_map<size_t, std::vector<void*>> free_blocks; // by size
  std::unordered_map<void*, size_t> sizes; // of blocks in use

  c10::DataPtr allocate(size_t wanted) override {
    if (wanted == 0) {
      return {nullptr, kDevice};
    }
    size_t size = 512; // the alignment: sizes are powers of two times this
    while (size < wanted) {
      size *= 2;
    }
    const std::lock_guard<std::mutex> lock(mutex);
    auto& unused = free_blocks[size];
    if (unused.empty()) {
      TORCH_CHECK_WITH(OutOfMemoryError, size <= kBytes - end, "chip: out of memory: ", wanted, " bytes wanted, ", used, " in use");
      unused.push_back(addresses + end);
      end += size;
    }
    void* block = unused.back();
    unused.pop_back();
    sizes[block] = size;
    used += static_cast<int64_t>(size);
    return {block, block, raw_deleter(), kDevice};
  }

  static void release(void* block);
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(bytes_at(to), bytes_at(from), count); }
};

Memory& memory() {
  static auto* one = new Memory; // never destroyed: tensors may outlive static objects
  return *one;
}

void Memory::release(void* block) {
  Memory& all = memory();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const size_t size = all.sizes.extract(block).mapped();
  all.used -= static_cast<int64_t>(size);
  all.free_blocks[size].push_back(block);
}

// Memory of the host from which the device could copy without the CPU. Here it is a list of what was allocated for that.
struct Pinned final : c10::Allocator {
  std::mutex mutex;
  std::map<const char*, size_t> blocks; // start -> size

  c10::DataPtr allocate(size_t size) override;
  void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(to, from, count); }
  bool holds(const void* address) {
    const std::lock_guard<std::mutex> lock(mutex);
    auto after = blocks.upper_bound(static_cast<const char*>(address));
    return after != blocks.begin() && (--after, address < after->first + after->second);
  }
};

Pinned& pinned() {
  static auto* one = new Pinned;
  return *one;
}

c10::DataPtr Pinned::allocate(size_t size) {
  char* block = new char[size + 1];
  const std::lock_guard<std::mutex> lock(mutex);
  blocks[block] = size + 1;
  const auto release = [](void* start) {
    {
      const std::lock_guard<std::mutex> lock(pinned().mutex);
      pinned().blocks.erase(static_cast<char*>(start));
    }
    delete[] static_cast<char*>(start);
  };
  return {block, block, release, at::kCPU};
}

REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &memory())

} // namespace

c10::Allocator* allocator() { return &memory(); }
c10::Allocator* pinned_allocator() { return &pinned(); }
bool is_pinned(const void* address) { return pinned().holds(address); }
int64_t memory_allocated() { return memory().used; }
char* bytes_at(const void* device_address) {
  return device_address ? memory().bytes + (static_cast<const char*>(device_address) - memory().addresses) : nullptr;
}

void resize_storage(const c10::Storage& storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(), "chip: this storage cannot be resized");
  c10::DataPtr moved = allocator()->allocate(bytes);
  if (const size_t kept = std::min(bytes, storage.nbytes())) {
    std::memcpy(bytes_at(moved.get()), bytes_at(storage.data()), kept);
  }
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(moved));
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
}

namespace {

using at::IntArrayRef;
using at::Storage;
using at::Tensor;
template <class T>
using Maybe = std::optional<T>;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

void check(Maybe<at::Layout> layout, Maybe<at::Device> device, Maybe<bool> pin) {
  check_device(device.value_or(kDevice));
  TORCH_CHECK(layout.value_or(at::kStrided) == at::kStrided, "chip: tensors are strided, not ", layout.value_or(at::kStrided));
  TORCH_CHECK(!pin.value_or(false), "chip: only memory of the CPU can be pinned");
}

Tensor empty(IntArrayRef size, Maybe<at::ScalarType> dtype, Maybe<at::Layout> layout, Maybe<at::Device> device, Maybe<bool> pin,
             Maybe<at::MemoryFormat> format) {
  check(layout, device, pin);
  return at::detail::empty_generic(size, allocator(), kKeys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, Maybe<at::ScalarType> dtype, Maybe<at::Layout> layout,
                     Maybe<at::Device> device, Maybe<bool> pin) {
  check(layout, device, pin);
  return at::detail::empty_strided_generic(size, stride, allocator(), kKeys, c10::dtype_or_default(dtype));
}

// -- resize and set -----------------------------------------------------------------------------------------------------

// Let the storage of a tensor have room for what the tensor will be.
void grow(const Tensor& self, IntArrayRef size, IntArrayRef stride, int64_t offset) {
  const size_t bytes = at::detail::computeStorageNbytes(size, stride, self.itemsize(), offset);
  if (bytes > self.storage().nbytes()) {
    resize_storage(self.storage(), bytes);
  }
}

const Tensor& resize_(const Tensor& self, IntArrayRef size, Maybe<at::MemoryFormat> format) {
  if (self.sizes() != size || format.has_value()) {
    self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
    self.unsafeGetTensorImpl()->empty_tensor_restride(format.value_or(at::MemoryFormat::Contiguous));
    grow(self, self.sizes(), self.strides(), self.storage_offset());
  }
  return self;
}

Tensor& set_storage(Tensor& self, Storage storage, int64_t offset, IntArrayRef size, IntArrayRef stride) {
  const auto strides = stride.data() != nullptr ? at::DimVector(stride) : c10::contiguous_strides(size);
  at::native::checkSetStorage(self, std::move(storage), offset, size, IntArrayRef(strides));
  grow(self, size, strides, offset);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, strides);
  return self;
}

Tensor& set_to_nothing(Tensor& self) {
  return self.set_(Storage(Storage::use_byte_size_t(), 0, allocator(), /*resizable=*/true), 0, {0}, {});
}

// -- copies -------------------------------------------------------------------------------------------------------------

// Return a tensor of the CPU on the same bytes: here, copying is the CPU's work.
Tensor as_cpu(const Tensor& tensor) {
  if (tensor.is_cpu()) {
    return tensor;
  }
  Tensor same = at::from_blob(data<char>(tensor), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
  same._set_conj(tensor.is_conj());
  same._set_neg(tensor.is_neg());
  return same;
}

Tensor copy_from(const Tensor& self, const Tensor& to, bool /*non_blocking*/) {
  at::assert_no_internal_overlap(to);
  at::assert_no_partial_overlap(to, self);
  as_cpu(to).copy_(as_cpu(self));
  return to;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& to) {
  to.resize_(self.sizes());
  return copy_from(self, to, false);
}

at::Scalar local_scalar_dense(const Tensor& self) { return as_cpu(self).item(); }

void record_stream(Tensor&, at::Stream) {} // kernels are synchronous

} // namespace

// The target of `_copy_from` may have the neg or conj bit. By default, torch would resolve it into a copy, and the write be lost.
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  KERNEL("empty.memory_format", empty);
  KERNEL("empty_strided", empty_strided);
  KERNEL("resize_", resize_);
  KERNEL("set_", set_to_nothing);
  KERNEL("set_.source_Tensor", at::native::set_tensor_);
  KERNEL("set_.source_Storage", static_cast<Tensor& (*)(Tensor&, Storage)>(at::native::set_));
  KERNEL("set_.source_Storage_storage_offset", set_storage);
  KERNEL("_copy_from", copy_from);
  KERNEL("_copy_from_and_resize", copy_from_and_resize);
  KERNEL("_local_scalar_dense", local_scalar_dense);
  KERNEL("record_stream", record_stream);
  // Of these views, torch requires three. The others would be made of `as_strided`, in Python.
  KERNEL("as_strided", at::native::as_strided_tensorimpl);
  KERNEL("view", at::native::view);
  KERNEL("_reshape_alias", at::native::_reshape_alias);
  KERNEL("expand", at::native::expand);
  KERNEL("permute", at::native::permute);
  KERNEL("select.int", at::native::select_symint);
  KERNEL("slice.Tensor", at::native::slice);
  KERNEL("squeeze.dim", static_cast<Tensor (*)(const Tensor&, int64_t)>(at::native::squeeze));
  KERNEL("t", at::native::t);
  KERNEL("transpose.int", static_cast<Tensor (*)(const Tensor&, int64_t, int64_t)>(at::native::transpose));
  KERNEL("unsqueeze", at::native::unsqueeze);
}

} // namespace chip
