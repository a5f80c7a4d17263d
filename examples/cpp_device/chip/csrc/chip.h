// What the files of the device share: its address space, its allocator, its generator, and the counters of its kernels.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/library.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

namespace chip {

inline const c10::Device kDevice{c10::DeviceType::PrivateUse1, 0};

inline void check_device(c10::Device device) {
  TORCH_CHECK(device.type() == kDevice.type() && device.index() <= 0, "chip: there is one device, ", kDevice, ", and no ", device);
}

// -- memory.cpp ---------------------------------------------------------------------------------------------------------

c10::Allocator* allocator();
c10::Allocator* pinned_allocator();
bool is_pinned(const void* address);
void resize_storage(const c10::Storage& storage, size_t bytes);
int64_t memory_allocated();

// Return where the bytes at a device address are in this process. Only kernels and copies may ask.
char* bytes_at(const void* device_address);

template <class T>
T* data(const at::Tensor& tensor) {
  return reinterpret_cast<T*>(bytes_at(tensor.const_data_ptr()));
}

// -- device.cpp ---------------------------------------------------------------------------------------------------------

// torch's Mersenne twister, with a state of its own. A real device would have a counter-based generator.
struct Generator final : at::CPUGeneratorImpl {
  Generator();
  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }
  Generator* clone_impl() const override;
};

const at::Generator& default_generator();

// -- counters -----------------------------------------------------------------------------------------------------------

using Counter = std::atomic<int64_t>;

// (name of the overload in the namespace aten, its number of calls)
inline std::vector<std::pair<std::string, Counter*>>& counters() {
  static auto* all = new std::vector<std::pair<std::string, Counter*>>;
  return *all;
}

template <auto function>
struct Counted;

template <class R, class... Args, R (*function)(Args...)>
struct Counted<function> {
  static inline Counter calls{0};
  static R call(Args... args) {
    ++calls;
    return function(std::forward<Args>(args)...);
  }
};

// Register a function as the device's kernel of an overload, and count its calls.
#define KERNEL(name, ...)                                                  \
  chip::counters().emplace_back(name, &chip::Counted<__VA_ARGS__>::calls); \
  m.impl(name, &chip::Counted<__VA_ARGS__>::call)

} // namespace chip
