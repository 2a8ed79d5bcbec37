// Accesses PyTorch's RecordFunction past its public interface, on the versions where that was tried.
//
// Requests outputs only for the calls that need them, and suspends the callback while an op runs whose inner
// calls are not recorded.

#pragma once

#include "calls.h"

namespace {

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction&);
void on_end(const at::RecordFunction&, at::ObserverContext*);

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR <= 13

// Gives access to a private member: an explicit instantiation may name it.
at::StepCallbacks& callbacks_of(at::RecordFunction&);
template <auto Member>
struct Reach {
  friend at::StepCallbacks& callbacks_of(at::RecordFunction& fn) { return fn.*Member; }
};
template struct Reach<&at::RecordFunction::step_callbacks_>;

// RecordFunction keeps the outputs of every call if one of its callbacks requests them. That costs as much as
// all its other work. Only new calls need their outputs, so the callback does not request them, and each new
// call requests its own after it has begun.
constexpr bool kOutputsOnDemand = true;
void want_outputs(const at::RecordFunction& fn) {
  callbacks_of(const_cast<at::RecordFunction&>(fn)).needs_outputs_ = true;
}

inline bool ours_alone(const at::StepCallbacks& these) {
  return these.callbacks_.size() == 1 && these.callbacks_[0].start_ == on_start;
}

// More than half of PyTorch's calls are made within an op that is recorded. Copying the arguments of each of
// these calls for a callback that ignores it costs more than all the work for the op itself. PyTorch has the
// callbacks for a thread's next call prepared. Where ours is the only one, it is removed from them until the
// op ends. They are in memory after the thread's RecordFunctionTLS. The values found there must equal the
// copy in ``fn``, and PyTorch must report no callbacks once ours is removed; otherwise it is not removed.
COLD void find_ready(Thread& t, const at::RecordFunction& fn) {
  constexpr size_t kFar = 1024;  // search this many bytes; the distance is 264 bytes in 2.13
  constexpr auto kScope = at::RecordScope::FUNCTION;
  const at::StepCallbacks& copy = callbacks_of(const_cast<at::RecordFunction&>(fn));
  if (!ours_alone(copy)) return;  // another profiler runs: try again at a later op
  t.sought = true;
  const char* own = reinterpret_cast<const char*>(&copy);
  auto within = reinterpret_cast<const char*>(copy.callbacks_.begin()) - own;
  t.tls = &at::get_record_function_tls_();
  auto from = reinterpret_cast<uintptr_t>(t.tls);
  for (uintptr_t at = from; at < from + kFar; at += alignof(at::StepCallbacks)) {
    auto& one = *reinterpret_cast<at::StepCallbacks*>(at);
    // first check that it is a vector with its elements at the same distance as in the copy
    if (reinterpret_cast<uintptr_t>(one.callbacks_.begin()) != at + within || !ours_alone(one)) continue;
    auto ours = one.callbacks_[0];
    if (ours.end_ != on_end || one.thread_id_ != copy.thread_id_ || one.scope_ != kScope) continue;
    one.callbacks_.clear();
    bool none = !at::getStepCallbacksUnlessEmpty(kScope).has_value();
    one.callbacks_.push_back(ours);
    if (!none) continue;
    t.ready = &one;
    return;
  }
}

// Removes our callback: the last action before an op within which nothing is recorded.
inline void hush(Thread& t, Context& c, const at::RecordFunction& fn) {
  if (C10_UNLIKELY(!t.sought)) find_ready(t, fn);
  if (!t.ready || !ours_alone(*t.ready)) return;
  c.hushed = g_observing.load(std::memory_order_relaxed);
  t.ready->callbacks_.clear();
}

// Puts our callback back: the first action after that op. If callbacks were added or removed meanwhile,
// PyTorch collects them anew: leave a collection that it has made, and let it make one that is pending.
inline void unhush(Thread& t, const Context& c) {
  if (t.ready->callbacks_.empty() && t.tls->tls_record_function_enabled_ &&
      c.hushed == g_observing.load(std::memory_order_acquire))
    t.ready->callbacks_.push_back({on_start, on_end});
}

#else
constexpr bool kOutputsOnDemand = false;
void want_outputs(const at::RecordFunction&) {}
inline void hush(Thread&, Context&, const at::RecordFunction&) {}
inline void unhush(Thread&, const Context&) {}
#endif

}  // namespace
