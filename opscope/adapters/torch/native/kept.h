// Where what is kept lies: in mappings of its own. What is kept of a call that is new is made between the
// program's tensors; in the same heap it would keep freed ones from being joined or given back. Of 30,000
// calls on tensors that grew each left the process at 21.8 GB instead of 0.22.

#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <memory_resource>
#include <mutex>
#include <new>
#include <string_view>

namespace {

// Whole pages from the system, and back to it.
struct Pages final : std::pmr::memory_resource {
  static size_t whole(size_t bytes) {
    static const size_t page = size_t(sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
  }
  void* do_allocate(size_t bytes, size_t) override {
    void* found = mmap(nullptr, whole(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) throw std::bad_alloc();
    return found;
  }
  void do_deallocate(void* what, size_t bytes, size_t) override { munmap(what, whole(bytes)); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

inline std::pmr::memory_resource* pages() {
  static auto* one = new Pages;  // never destroyed: threads may outlive static destruction
  return one;
}

// Of all threads, under the lock of ``Global``; given back to itself alone.
constexpr size_t kArena = 1 << 18, kLargestPooled = 1 << 16;
struct Kept {
  std::pmr::monotonic_buffer_resource chunks{kArena, pages()};
  std::pmr::unsynchronized_pool_resource pool{{0, kLargestPooled}, &chunks};

  template <class Value, class... Arguments>
  Value* make(Arguments&&... arguments) {
    return new (pool.allocate(sizeof(Value), alignof(Value))) Value(std::forward<Arguments>(arguments)...);
  }
  // A copy, which ends with a zero byte.
  std::string_view copy(std::string_view chars) {
    char* to = static_cast<char*>(pool.allocate(chars.size() + 1, 1));
    chars.copy(to, chars.size());
    to[chars.size()] = 0;
    return {to, chars.size()};
  }
};

// Blocks of one size, which threads fill and the recorder empties.
template <class Value>
class Spares {
  static constexpr size_t kMost = 64;
  std::mutex lock_;
  Value* spare_[kMost];
  size_t count_ = 0;

 public:
  Value* get() {
    {
      std::lock_guard<std::mutex> guard(lock_);
      if (count_) return new (spare_[--count_]) Value;
    }
    return new (pages()->allocate(sizeof(Value), alignof(Value))) Value;
  }
  void put(Value* value) {
    value->~Value();
    {
      std::lock_guard<std::mutex> guard(lock_);
      if (count_ < kMost) {
        spare_[count_++] = value;
        return;
      }
    }
    pages()->deallocate(value, sizeof(Value), alignof(Value));
  }
  std::mutex& lock() { return lock_; }  // for forks
};

}  // namespace
