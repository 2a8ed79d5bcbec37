// Stands in for libtensorflow_cc: announces ops and XLA:GPU's instructions through its import table.
//
// The questions that are asked before each call are those of tsl/profiler/lib/scoped_annotation.h and of
// xla/backends/gpu/runtime/annotation.h.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tsl::profiler {
struct String;
struct ProfilerDomain;
ProfilerDomain* DefaultProfilerDomain();
void RangePush(ProfilerDomain*, const char*);
void RangePop(ProfilerDomain*);
String* RegisterString(ProfilerDomain*, const std::string&);
namespace detail {
void RangePush(ProfilerDomain*, String*, uint64_t, const void*, size_t);
}
class AnnotationStack {
 public:
  static void PushAnnotation(std::string_view);
  static void PopAnnotation();
  static void Enable(bool);
  static bool IsEnabled() { return generation_.load() & 1; }

 private:
  static std::atomic<int> generation_;
};
}  // namespace tsl::profiler

using namespace tsl::profiler;

// An instruction of a compiled program: its title was registered when it was compiled.
struct Instruction {
  std::string title;
  String* handle;
};

extern "C" {
void push_op(const char* name) {
  if (auto* domain = DefaultProfilerDomain())
    RangePush(domain, name);
  else if (AnnotationStack::IsEnabled())
    AnnotationStack::PushAnnotation(name);
}

void* compile(const char* title) {
  auto* domain = DefaultProfilerDomain();
  return new Instruction{title, domain ? RegisterString(domain, title) : nullptr};
}

void push_instruction(const void* of) {
  const auto& instruction = *static_cast<const Instruction*>(of);
  if (auto* domain = DefaultProfilerDomain())
    detail::RangePush(domain, instruction.handle, 7, &instruction, sizeof instruction);
  else if (AnnotationStack::IsEnabled())
    AnnotationStack::PushAnnotation(instruction.title);
}

void pop() {
  if (auto* domain = DefaultProfilerDomain())
    RangePop(domain);
  else if (AnnotationStack::IsEnabled())
    AnnotationStack::PopAnnotation();
}

// What CuptiTracer::Enable and Disable do.
void profile(int on) { AnnotationStack::Enable(on); }
}
