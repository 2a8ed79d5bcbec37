// Finds the source lines of a call, the same as source.py: the user's, and before them the innermost line of
// a library. Known frames are read without the GIL.

#pragma once

#include "ops.h"

namespace {

// ------------------------------------------------------------------- CPython's frames in memory

// Offsets (bytes) in CPython's structures for a walk up this thread's own frames. Only the thread itself
// changes its frames, and this code runs on it, so the frames can be read while other threads run. The
// offsets are those of one minor version. The walk is compared once with the C API's (``check_layout``).
// Where they differ, and on versions not listed here, the C API is called each time, under the GIL.
struct Layout {
  int version;       // 0x30B: 3.11
  int first;         // in the thread state: the innermost frame, or a structure that points to it
  int indirect;      // in that structure; -1 where there is none
  int code, previous, instruction, owner;
  int c_stack;       // the value of ``owner`` for frames that are no Python code; -1 where there are none
  int function;      // the function, where frames without a function exist; else -1
};
constexpr Layout kLayouts[] = {
    {0x30B, 56, 8, 32, 48, 56, 69, -1, -1},
    {0x30C, 56, 0, 0, 8, 56, 70, 3, -1},
    {0x30D, 72, -1, 0, 8, 56, 70, 3, 16},
};
std::atomic<const Layout*> g_layout{nullptr};

template <class T>
T at_offset(const char* from, int offset) {
  T value;
  std::memcpy(&value, from + offset, sizeof value);
  return value;
}

const char* first_frame(const Layout& layout, const PyObject* state) {
  auto found = at_offset<const char*>(reinterpret_cast<const char*>(state), layout.first);
  return layout.indirect >= 0 && found ? at_offset<const char*>(found, layout.indirect) : found;
}

// Whether a frame is CPython's own: one where C calls Python, or one that calls __init__ for a class that is
// called often.
inline bool between(const Layout& layout, const char* frame) {
  return at_offset<char>(frame, layout.owner) == layout.c_stack ||
      (layout.function >= 0 && at_offset<PyObject*>(frame, layout.function) == &_Py_NoneStruct);
}

// Returns the frame itself, or the next frame up that is the program's.
const char* python_frame(const Layout& layout, const char* frame) {
  while (frame && between(layout, frame)) frame = at_offset<const char*>(frame, layout.previous);
  return frame;
}

// Whether the walk finds the same frames as the C API, from here up. Under the GIL. Every code object has its
// instructions at the same offset. So the address of a frame's instruction, less the code object's address
// and the instruction's index in the API, must be the same in all frames.
bool check_layout(const Layout& layout) {
  if (!PyFrame_GetLasti) return false;
  uint64_t distance = 0;
  const char* raw = python_frame(layout, first_frame(layout, PyThreadState_Get()));
  PyObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  bool same = frame != nullptr;
  for (int depth = 0; frame && depth < kFrameDepth; ++depth) {
    PyObject* code = PyFrame_GetCode(frame);
    PyObject* back = PyFrame_GetBack(frame);
    same = same && raw && at_offset<PyObject*>(raw, layout.code) == code;
    if (same) {
      uint64_t found = at_offset<uint64_t>(raw, layout.instruction) - uint64_t(code) -
          uint64_t(int64_t(PyFrame_GetLasti(frame)));
      same = found < 4096 && (depth == 0 || found == distance);
      distance = found;
    }
    if (same) raw = python_frame(layout, at_offset<const char*>(raw, layout.previous));
    Py_DecRef(code);
    Py_DecRef(frame);
    frame = back;
  }
  if (frame)
    Py_DecRef(frame);
  else
    same = same && !raw;
  return same;
}

void choose_layout(int version) {
  g_layout.store(nullptr);
  for (const Layout& layout : kLayouts)
    if (layout.version == version && check_layout(layout)) g_layout.store(&layout);
}

// ------------------------------------------------------------------- known codes and places

struct CodeInfo {
  Whose whose = Whose::others;
  std::string file;
};
struct PlaceKey {
  std::array<uint64_t, 2 * (kFrames + 1)> parts{};
  bool operator==(const PlaceKey& other) const { return parts == other.parts; }
};
struct PlaceHash {
  size_t operator()(const PlaceKey& key) const {
    Hasher hash{1};
    for (uint64_t part : key.parts) hash.add(part);
    return hash.state;
  }
};
// Under the GIL only. Keeps its code objects alive, so that an address always means the same code.
struct Sources {
  PyObject* classify = nullptr;
  std::unordered_map<PyObject*, CodeInfo> codes;
  std::unordered_map<PlaceKey, const Place*, PlaceHash> places;
};
Sources& sources() {
  static Sources* one = new Sources;
  return *one;
}
const Place kNowhere{};
// A thread's table of codes points to one of these.
constexpr Whose kEach[] = {Whose::others, Whose::users, Whose::library};

// Returns whose code it is and its file; null for codes after the first 65,536, which are not kept.
const CodeInfo* code_info(Sources& all, PyObject* code) {
  auto found = all.codes.find(code);
  if (found != all.codes.end()) return &found->second;
  CodeInfo info;
  if (all.classify) {
    PyObject* file = PyObject_CallFunctionObjArgs(all.classify, code, nullptr);
    const char* text = file ? PyBytes_AsString(file) : nullptr;
    if (!text) {
      PyErr_Clear();
    } else if (*text) {
      info.whose = *text == kLibraryMark ? Whose::library : Whose::users;
      if (*text == kLibraryMark) ++text;
      info.file = plain_name(text) ? text : json(text);
    }
    if (file) Py_DecRef(file);
  }
  // Entries must not be dropped, because places refer to them.
  if (all.codes.size() >= kMaxPlaces) return nullptr;
  Py_IncRef(code);
  return &all.codes.emplace(code, std::move(info)).first->second;
}

uint64_t code_key(const PyObject* code) {
  return (uint64_t(code) >> 4) * 0x9E3779B97F4A7C15ull;  // an odd factor: distinct keys stay distinct
}

// Prefetches all frames that the next walk reads one after the other.
inline void fetch_frames(const Thread& t) {
  const Layout* layout = g_layout.load(std::memory_order_relaxed);
  if (!layout) return;
  for (const char* frame : t.frames) {
    if (!frame) break;  // no earlier walk was longer
    __builtin_prefetch(frame + layout->code);
    __builtin_prefetch(frame + layout->owner);
  }
}

// Returns the place, if this thread knows the codes of all these frames and the place; else null. ``key`` is
// the place's key in the thread's table; 0 where a code is new.
const Place* known_place(Thread& t, const PyObject* state, uint64_t& key) {
  key = 0;
  const Layout* layout = g_layout.load(std::memory_order_relaxed);
  if (!layout) return nullptr;
  Hasher hash{1};
  int count = 0;
  bool any = false;
  const char* frame = python_frame(*layout, first_frame(*layout, state));
  for (int depth = 0; frame && depth < kFrameDepth && count < kFrames; ++depth) {
    if (depth < kRecentFrames) t.frames[depth] = frame;
    const auto* code = at_offset<const PyObject*>(frame, layout->code);
    uint64_t& recent = t.recent.of(uint64_t(code));
    if (C10_UNLIKELY((recent & ~kWhose) != uint64_t(code))) {
      const Whose* whose = t.codes.find(code_key(code));
      if (!whose) return nullptr;
      recent = uint64_t(code) | uint64_t(*whose);
    }
    auto whose = Whose(recent & kWhose);
    if (whose == Whose::users || (whose == Whose::library && !any)) {
      // as long as the code lives, an instruction's address identifies a place
      hash.add(at_offset<uint64_t>(frame, layout->instruction));
      any = true;
      count += whose == Whose::users;
    }
    frame = python_frame(*layout, at_offset<const char*>(frame, layout->previous));
  }
  if (!any) return &kNowhere;
  key = hash.state | 1;
  return t.places.find(key);
}

// Finds the place through Python's C API, and remembers its codes and the place.
COLD const Place* ask_place(Thread& t, const PyObject* state) {
  Slow slow(t);
  int gil = PyGILState_Ensure();
  Sources& all = sources();
  PlaceKey key;
  PyObject* user[kFrames + 1];
  const CodeInfo* infos[kFrames + 1];
  int count = 0, users = 0;
  PyObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  for (int depth = 0; frame && depth < kFrameDepth && users < kFrames; ++depth) {
    PyObject* code = PyFrame_GetCode(frame);
    PyObject* back = PyFrame_GetBack(frame);
    const CodeInfo* info = code_info(all, code);
    if (info && t.codes.count < kMaxPlaces && !t.codes.find(code_key(code)))
      t.codes.insert(code_key(code), &kEach[int(info->whose)]);
    if (info && (info->whose == Whose::users || (info->whose == Whose::library && !count))) {
      users += info->whose == Whose::users;
      int at = PyFrame_GetLasti ? PyFrame_GetLasti(frame) : PyFrame_GetLineNumber(frame);
      key.parts[2 * count] = uint64_t(code);
      key.parts[2 * count + 1] = uint64_t(at) + 1;
      infos[count] = info;
      user[count++] = frame;
    } else {
      Py_DecRef(frame);
    }
    Py_DecRef(code);  // the frame, or our table, keeps it alive
    frame = back;
  }
  if (frame) Py_DecRef(frame);
  const Place* place = &kNowhere;
  bool keep = count > 0;
  if (count) {
    auto found = all.places.find(key);
    if (found != all.places.end()) {
      place = found->second;
    } else if (all.places.size() < kMaxPlaces) {
      auto* made = new Place;
      for (int at = 0; at < count; ++at)
        made->pieces.push_back(
            (at ? " < " : " @") + infos[at]->file + ":" + std::to_string(PyFrame_GetLineNumber(user[at])));
      all.places.emplace(key, made);
      place = made;
    } else {
      keep = false;
    }
  }
  for (int at = 0; at < count; ++at) Py_DecRef(user[at]);
  PyGILState_Release(gil);
  // Walk again: the codes that were new are known now, so there is a key.
  uint64_t raw;
  if (keep && !known_place(t, state, raw) && raw && t.places.count < kMaxPlaces) t.places.insert(raw, place);
  return place;
}

inline const Place* find_place(Thread& t) {
  const PyObject* state = PyGILState_GetThisThreadState();
  if (!state) return &kNowhere;  // not a Python thread
  uint64_t key;
  const Place* known = known_place(t, state, key);
  return C10_LIKELY(known != nullptr) ? known : ask_place(t, state);
}

}  // namespace
