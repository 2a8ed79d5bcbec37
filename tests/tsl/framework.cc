// Stands in for libtensorflow_framework: what TSL keeps of annotations, under its own symbols.
//
// Behaves as tsl/profiler/backends/cpu/annotation_stack.cc, lib/nvtx_utils.cc and lib/nvtx_utils_stub.cc do
// in TensorFlow 2.17 to 2.21. An NVTX tool is here what writes down what it hears.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace {
std::mutex lock;
std::string heard;       // what the tool heard: one line a call
bool tool;

struct Stack {
  int generation = 0;
  std::vector<size_t> lengths;
  std::string text;
};

void note(const std::string& line) {
  std::lock_guard<std::mutex> guard(lock);
  heard += line + "\n";
}
}  // namespace

namespace tsl::profiler {
struct String;
struct ProfilerDomain;

class AnnotationStack {
 public:
  static void PushAnnotation(std::string_view name);
  static void PopAnnotation();
  static const std::string& Get();
  static void Enable(bool enable);

 private:
  static Stack& mine();
  static std::atomic<int> generation_;
};

std::atomic<int> AnnotationStack::generation_{0};

// A thread's stack is void once annotations were turned on or off.
Stack& AnnotationStack::mine() {
  thread_local Stack stack;
  if (int now = generation_.load(); stack.generation != now) stack = Stack{now, {}, {}};
  return stack;
}

void AnnotationStack::PushAnnotation(std::string_view name) {
  Stack& stack = mine();
  stack.lengths.push_back(stack.text.size());
  if (!stack.text.empty()) stack.text += "::";
  stack.text += name;
}

void AnnotationStack::PopAnnotation() {
  Stack& stack = mine();
  stack.text.resize(stack.lengths.empty() ? 0 : stack.lengths.back());
  if (!stack.lengths.empty()) stack.lengths.pop_back();
}

const std::string& AnnotationStack::Get() { return mine().text; }

void AnnotationStack::Enable(bool enable) {
  int now = generation_.load();
  while (!generation_.compare_exchange_weak(now, enable ? now | 1 : (now + 1) & ~1)) continue;
}

ProfilerDomain* DefaultProfilerDomain() {
  static ProfilerDomain* domain = reinterpret_cast<ProfilerDomain*>(tool ? &tool : nullptr);
  return domain;
}

void RangePush(ProfilerDomain*, const char* text) { note(std::string("push ") + text); }
void RangePop(ProfilerDomain*) { note("pop"); }

String* RegisterString(ProfilerDomain*, const std::string& text) {
  return tool ? reinterpret_cast<String*>(strdup(text.c_str())) : nullptr;
}

namespace detail {
void RangePush(ProfilerDomain*, String* title, uint64_t, const void*, size_t size) {
  note("titled " + std::string(title ? reinterpret_cast<char*>(title) : "?") + " " + std::to_string(size));
}
}  // namespace detail
}  // namespace tsl::profiler

extern "C" {
void tool_attaches() { tool = true; }
const char* tool_heard() { return heard.c_str(); }
const char* stack_now() { return tsl::profiler::AnnotationStack::Get().c_str(); }
}
