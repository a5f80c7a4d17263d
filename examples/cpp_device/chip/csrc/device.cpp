// What torch asks a device: its streams and events, its hooks and generator, autocast, and the fallback to the CPU.
#include "chip.h"

#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>

namespace chip {
namespace {

// -- streams and events -------------------------------------------------------------------------------------------------

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;
using Clock = std::chrono::steady_clock;

std::atomic<c10::StreamId> last_stream{0};
thread_local c10::StreamId current_stream = 0;

// Kernels are synchronous: when `record` returns, all work of the stream is done. So an event is the time when it was recorded.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDevice.type(); }
  Device getDevice() const override { return kDevice; }
  Device exchangeDevice(Device device) const override {
    check_device(device);
    return kDevice;
  }
  void setDevice(Device device) const override { check_device(device); }
  void uncheckedSetDevice(Device) const noexcept override {}
  DeviceIndex deviceCount() const noexcept override { return 1; }
  void synchronizeDevice(const DeviceIndex) const override {}

  Stream getStream(Device) const override { return Stream(Stream::UNSAFE, kDevice, current_stream); }
  Stream getDefaultStream(Device) const override { return Stream(Stream::DEFAULT, kDevice); }
  Stream getNewStream(Device, int /*priority*/) const override { return Stream(Stream::UNSAFE, kDevice, ++last_stream); }
  Stream getStreamFromGlobalPool(Device device, bool /*is_high_priority*/) const override { return getNewStream(device, 0); }
  Stream exchangeStream(Stream stream) const override {
    return Stream(Stream::UNSAFE, kDevice, std::exchange(current_stream, stream.id()));
  }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}

  void record(void** event, const Stream&, const DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) {
      *event = new Clock::time_point;
    }
    *static_cast<Clock::time_point*>(*event) = Clock::now();
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<Clock::time_point*>(event); }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  double elapsedTime(void* start, void* end, const DeviceIndex) const override {
    const auto elapsed = *static_cast<Clock::time_point*>(end) - *static_cast<Clock::time_point*>(start);
    return std::chrono::duration<double, std::milli>(elapsed).count();
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// -- hooks --------------------------------------------------------------------------------------------------------------

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex index) const override { check_device({kDevice.type(), index}); }
  DeviceIndex exchangeDevice(DeviceIndex index) const override {
    setCurrentDevice(index);
    return 0;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  const at::Generator& getDefaultGenerator(DeviceIndex) const override { return default_generator(); }
  at::Generator getNewGenerator(DeviceIndex) const override { return at::make_generator<Generator>(); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
  Device getDeviceFromPtr(void*) const override { return kDevice; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override { resize_storage(storage, bytes); }
};

[[maybe_unused]] const bool hooks_registered = (at::RegisterPrivateUse1HooksInterface(new Hooks), true);

} // namespace

Generator::Generator() {
  device_ = kDevice;
  key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
}

Generator* Generator::clone_impl() const {
  auto* copy = new Generator;
  copy->set_state(*get_state());
  return copy;
}

const at::Generator& default_generator() {
  static auto* one = new at::Generator(at::make_generator<Generator>());
  return *one;
}

namespace {

// -- autocast: torch's lists of ops for GPUs ------------------------------------------------------------------------------

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

#define LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define FLOAT32_IF_UNSET(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define PROMOTED(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(LOWER_PRECISION)
  AT_FORALL_FP32(FLOAT32)
  AT_FORALL_FP32_SET_OPT_DTYPE(FLOAT32_IF_UNSET)
  AT_FORALL_PROMOTE(PROMOTED)
}

// -- fallback -----------------------------------------------------------------------------------------------------------

std::mutex fallback_mutex;
std::map<std::string, int64_t> fallback_calls;

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  {
    const std::lock_guard<std::mutex> lock(fallback_mutex);
    ++fallback_calls[toString(op.operator_name())]; // such as aten::sort.stable
  }
  at::native::cpu_fallback(op, stack);
}

// CHIP_FALLBACK=0 leaves it out.
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  const char* wanted = std::getenv("CHIP_FALLBACK");
  if (wanted == nullptr || std::string(wanted) != "0") {
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

// -- for Python ---------------------------------------------------------------------------------------------------------

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("default_generator", &default_generator);
  m.def("memory_allocated", &memory_allocated);
  m.def("kernel_calls", [] {
    std::map<std::string, int64_t> calls;
    for (const auto& [name, count] : counters()) {
      calls["aten." + name + (name.find('.') == std::string::npos ? ".default" : "")] = *count;
    }
    return calls;
  });
  m.def("fallback_calls", [] {
    const std::lock_guard<std::mutex> lock(fallback_mutex);
    return fallback_calls;
  });
  m.def("reset_calls", [] {
    for (const auto& [name, count] : counters()) {
      *count = 0;
    }
    const std::lock_guard<std::mutex> lock(fallback_mutex);
    fallback_calls.clear();
  });
}

} // namespace
} // namespace chip
